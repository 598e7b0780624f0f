// Package registry is a registry of images for the nodes of a sandbox, in the memory of its process.
package registry

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// private is the first part of the names of repositories that need User and Password.
const private = "private/"

// User and Password are those that may read and write the repositories below private/.
const (
	User     = "consumer"
	Password = "sandbox"
)

// New returns a registry without images.
func New() http.Handler {
	return authenticated(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
}

// authenticated refuses requests for private repositories without the password.
func authenticated(next http.Handler) http.Handler {
	equal := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		known := equal(user, User) && equal(password, Password)
		if strings.HasPrefix(r.URL.Path, "/v2/"+private) && !known {
			w.Header().Set("WWW-Authenticate", `Basic realm="sandbox"`)
			http.Error(w, "the repository is private", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Push writes an image, under NAME:TAG, to the registry that serves plain HTTP at a loopback address.
func Push(ctx context.Context, address, tag string, image v1.Image) error {
	to, err := name.NewTag(address + "/" + tag)
	if err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	credentials := remote.WithAuth(&authn.Basic{Username: User, Password: Password})
	if err := remote.Write(to, image, remote.WithContext(ctx), credentials); err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	return nil
}
