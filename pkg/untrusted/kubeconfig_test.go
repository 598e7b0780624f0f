package untrusted

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Otherwise a peer that can write the Secret could make this process send its files to a server of the peer's choice,
// and run a command of its choice.
func TestCredentialsAreThoseInTheKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("of this process"), 0o600))
	const files, authority = "has user fields other than", "names a file (certificate-authority)"
	for name, tc := range map[string]struct{ user, cluster, because string }{
		"a certificate":       {user: "{client-certificate-data: eA==, client-key-data: eA==}"},
		"a token":             {user: "{token: x}"},
		"nothing":             {user: "{}"},
		"an authority":        {user: "{}", cluster: ", certificate-authority-data: eA=="},
		"a file with a token": {user: "{tokenFile: " + file + "}", because: files},
		"beside a certificate": {
			user: "{client-certificate-data: eA==, client-key-data: eA==, tokenFile: " + file + "}", because: files,
		},
		"a command": {
			user:    "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: /bin/true}}",
			because: files,
		},
		"a plugin":                   {user: "{auth-provider: {name: oidc}}", because: files},
		"a file with a certificate":  {user: "{client-certificate: " + file + ", client-key-data: eA==}", because: files},
		"a file with a key":          {user: "{client-certificate-data: eA==, client-key: " + file + "}", because: files},
		"a password":                 {user: "{username: x, password: word}", because: files},
		"another user":               {user: "{as: system:admin}", because: files},
		"a group":                    {user: "{as-groups: [system:masters]}", because: files},
		"a file with the authority":  {user: "{}", cluster: ", certificate-authority: " + file, because: authority},
		"something that is not YAML": {user: "{", because: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{"kubeconfig": []byte("apiVersion: v1\nkind: Config\ncurrent-context: c\n" +
				"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: " + tc.user + "}]\n" +
				"clusters: [{name: c, cluster: {server: 'https://192.0.2.1:6443'" + tc.cluster + "}}]\n")}}
			asked := false
			config, err := Config(secret, nil, func(s *corev1.Secret) (*rest.Config, error) {
				asked = true
				return clientcmd.RESTConfigFromKubeConfig(s.Data["kubeconfig"])
			})
			if tc.because == "" {
				require.NoError(t, err)
				require.NotNil(t, config)
				return
			}
			why := (*AddressError)(nil)
			require.ErrorAs(t, err, &why)
			require.ErrorContains(t, err, tc.because)
			require.False(t, asked, "the file is not read either")
		})
	}
}

// Liqo v0.x keeps the parts of a kubeconfig, and for AWS Liqo makes a file with the token.
func TestWhatLiqoAddsToAnIdentityIsUsed(t *testing.T) {
	config, err := Config(&corev1.Secret{}, nil, func(*corev1.Secret) (*rest.Config, error) {
		return &rest.Config{Host: "https://192.0.2.1", BearerTokenFile: "/tmp/token1"}, nil
	})
	require.NoError(t, err)
	require.Equal(t, "/tmp/token1", config.BearerTokenFile)
}
