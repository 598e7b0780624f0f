// Package registry is a registry of images for the nodes of a sandbox, in the memory of its process.
package registry

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

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

// Registry is a registry, with its listener.
type Registry struct {
	server   *http.Server
	listener net.Listener
}

// Listen returns a registry at a port of the loopback interface, over plain HTTP.
func Listen() (*Registry, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("registry of images: %w", err)
	}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := &http.Server{Handler: authenticated(images), ReadHeaderTimeout: 10 * time.Second}
	return &Registry{listener: listener, server: server}, nil
}

// Serve serves until Close.
func (r *Registry) Serve() error {
	if err := r.server.Serve(r.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("registry of images: %w", err)
	}
	return nil
}

// authenticated refuses requests for private repositories without the password.
func authenticated(next http.Handler) http.Handler {
	equal := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if strings.HasPrefix(r.URL.Path, "/v2/"+private) && !(equal(user, User) && equal(password, Password)) {
			w.Header().Set("WWW-Authenticate", `Basic realm="sandbox"`)
			http.Error(w, "the repository is private", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Address is where the registry serves.
func (r *Registry) Address() string { return r.listener.Addr().String() }

// Push writes an image, under NAME:TAG.
func (r *Registry) Push(ctx context.Context, tag string, image v1.Image) error {
	to, err := name.NewTag(r.Address() + "/" + tag)
	if err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	credentials := remote.WithAuth(&authn.Basic{Username: User, Password: Password})
	if err := remote.Write(to, image, remote.WithContext(ctx), credentials); err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	return nil
}

// Close ends Serve, and all connections.
func (r *Registry) Close() error { return r.server.Close() }
