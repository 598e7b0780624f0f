package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
)

// The virtual kubelet of Liqo v0.x is in the directory of this program; the test uses another program in its place.
func TestTheArgumentsOfLiqoV0StartItsVirtualKubelet(t *testing.T) {
	if os.Getenv("AS_PROGRAM") != "" {
		args := []string{"--home-cluster-name=h", "--foreign-cluster-id=p1"}
		err := runAs(t.Context(), "/usr/bin/virtual-kubelet", args, os.Stdout, os.Stderr)
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "liqo-broker-vk")
	this, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Link(this, program))
	start := func() (stdout, stderr string, err error) {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "AS_PROGRAM=yes")
		var out, problem bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &problem
		err = cmd.Run()
		return out.String(), problem.String(), err
	}
	_, stderr, err := start()
	require.Error(t, err)
	require.Contains(t, stderr, "--home-cluster-name is a flag of Liqo v0.x")
	require.Contains(t, stderr, build.LegacyProgram)

	require.NoError(t, os.WriteFile(filepath.Join(dir, build.LegacyProgram), []byte("#!/bin/sh\necho started \"$@\"\n"), 0o755))
	stdout, stderr, err := start()
	require.NoError(t, err, stderr)
	require.Equal(t, "started --home-cluster-name=h --foreign-cluster-id=p1\n", stdout)
}

func TestTheVersionOfLiqoIsReadFromTheProgram(t *testing.T) {
	this, err := os.Executable()
	require.NoError(t, err)
	require.Equal(t, build.Of(version, commit).Liqo, build.LegacyLiqo(this), "this program stands in for the other")
	require.Empty(t, build.LegacyLiqo(filepath.Join(t.TempDir(), "none")))
}
