package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheArchiveHasTheNameOfTheImage(t *testing.T) {
	for given, want := range map[string][2]string{
		"":                                {"docker.io/library/liqo-broker-vk:v1.2.3", "v1.2.3"},
		"me/liqo-broker-vk":               {"docker.io/me/liqo-broker-vk:v1.2.3", "v1.2.3"},
		"ghcr.io/me/liqo-broker-vk":       {"ghcr.io/me/liqo-broker-vk:v1.2.3", "v1.2.3"},
		"ghcr.io/me/liqo-broker-vk:v1":    {"ghcr.io/me/liqo-broker-vk:v1", "v1"},
		"registry.test:5000/broker":       {"registry.test:5000/broker:v1.2.3", "v1.2.3"},
		"registry.test:5000/broker:later": {"registry.test:5000/broker:later", "later"},
	} {
		tag, err := tagOf(given, "v1.2.3")
		require.NoError(t, err)
		require.Equal(t, map[string]string{
			"io.containerd.image.name": want[0], "org.opencontainers.image.ref.name": want[1],
		}, references(tag), given)
	}
}

func TestANameDoesNotChangeTheDigest(t *testing.T) {
	c := newClone(t)
	archive, _ := c.image("-platforms=linux/amd64")
	unnamed, _ := unpack(t, archive)
	archive, _ = c.image("-platforms=linux/amd64", "-image=ghcr.io/me/liqo-broker-vk:v1")
	named, said := unpack(t, archive)
	require.Equal(t, "ghcr.io/me/liqo-broker-vk:v1", said.Annotations["io.containerd.image.name"])

	want, err := unnamed.Digest()
	require.NoError(t, err)
	got, err := named.Digest()
	require.NoError(t, err)
	require.Equal(t, want, got)
}
