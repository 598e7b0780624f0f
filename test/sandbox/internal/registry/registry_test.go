package registry

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/stretchr/testify/require"
)

func TestPrivateRepositoriesNeedThePassword(t *testing.T) {
	server := httptest.NewServer(New())
	defer server.Close()
	address := server.Listener.Addr().String()
	image, err := random.Image(64, 1)
	require.NoError(t, err)
	for _, tag := range []string{"public/image:1", "private/image:1"} {
		require.NoError(t, Push(t.Context(), address, tag, image))
	}
	pull := func(tag string, as authn.Authenticator) error {
		from, err := name.NewTag(address + "/" + tag)
		require.NoError(t, err)
		_, err = remote.Image(from, remote.WithContext(t.Context()), remote.WithAuth(as))
		return err
	}
	require.NoError(t, pull("public/image:1", authn.Anonymous))
	require.NoError(t, pull("private/image:1", &authn.Basic{Username: User, Password: Password}))
	for _, tc := range []struct {
		tag  string
		as   authn.Authenticator
		code int
	}{
		{"private/image:1", authn.Anonymous, http.StatusUnauthorized},
		{"private/image:1", &authn.Basic{Username: User, Password: "wrong"}, http.StatusUnauthorized},
		{"public/image:2", authn.Anonymous, http.StatusNotFound},
	} {
		var refused *transport.Error
		require.ErrorAs(t, pull(tc.tag, tc.as), &refused)
		require.Equal(t, tc.code, refused.StatusCode)
	}
}
