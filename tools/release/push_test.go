package main

import (
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"
)

// newRegistry returns the address of a registry that accepts one user.
func newRegistry(t *testing.T, user, password string) string {
	t.Helper()
	open := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		open.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// logIn writes the configuration that docker login writes.
func logIn(t *testing.T, host, user, password string) {
	t.Helper()
	dir := t.TempDir()
	secret := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	config := []byte(`{"auths":{"` + host + `":{"auth":"` + secret + `"}}}`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600))
	t.Setenv("DOCKER_CONFIG", dir)
}

func TestPushUploadsWhatTheArchiveHolds(t *testing.T) {
	c := newClone(t)
	host := newRegistry(t, "me", "secret")
	logIn(t, host, "me", "secret")
	archive, said := c.image("-image="+host+"/federation/liqo-broker-vk:v1", "-push")
	index, _ := unpack(t, archive)
	want, err := index.Digest()
	require.NoError(t, err)
	require.Equal(t, host+"/federation/liqo-broker-vk:v1@"+want.String(), said)

	tag, err := name.NewTag(host + "/federation/liqo-broker-vk:v1")
	require.NoError(t, err)
	pulled, err := remote.Index(tag, remote.WithAuth(basic("me", "secret")))
	require.NoError(t, err)
	require.NoError(t, validate.Index(pulled))
	got, err := pulled.Digest()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestPushNamesTheRegistryThatRefused(t *testing.T) {
	c := newClone(t)
	host := newRegistry(t, "me", "secret")
	logIn(t, host, "me", "guess")
	args := []string{"-source=" + c.dir, "-platforms=linux/amd64", "-image=" + host + "/a:b", "-push"}
	err := run(t.Context(), args, io.Discard)
	require.ErrorContains(t, err, "push "+host+"/a:b")
	require.ErrorContains(t, err, "401")
}

func basic(user, password string) authn.Authenticator {
	return &authn.Basic{Username: user, Password: password}
}
