package main

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
)

// Only this package's test program has the versions of its modules.
func TestABuildKnowsWhatItIsMadeOf(t *testing.T) {
	built := build.Of(version, commit)
	require.Equal(t, runtime.Version(), built.Go)
	require.Equal(t, runtime.GOOS+"/"+runtime.GOARCH, built.Platform)
	require.Regexp(t, `^v1\.\d+\.\d+`, built.Liqo)
	require.Regexp(t, `^v1\.\d+\.\d+`, built.Kubernetes)
}
