package wire_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	liqoipam "github.com/liqotech/liqo/pkg/ipam"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam/wire"
)

// The generated files are those that the generator writes now.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	here, err := os.Getwd()
	require.NoError(t, err)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./protogen", filepath.Join(here, "remote_ipam.proto"), dir)
	cmd.Dir = filepath.Join("..", "..", "..", "tools")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	for _, name := range []string{"remote_ipam.pb.go", "remote_ipam_grpc.pb.go"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s is out of date: run make generate", name)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 2)
}

// Messages without a package share one namespace in a process, where a second of the same name is a panic at start. This
// binary links Liqo's own IPAM as well, and both are registered.
func TestLivesBesideTheIPAMOfLiqo(t *testing.T) {
	for _, file := range []string{wire.File_remote_ipam_proto.Path(), liqoipam.File_pkg_ipam_ipam_proto.Path()} {
		found, err := protoregistry.GlobalFiles.FindFileByPath(file)
		require.NoError(t, err)
		assert.Equal(t, file, found.Path())
	}
	assert.Equal(t, "/ipam/MapEndpointIP", wire.Ipam_MapEndpointIP_FullMethodName)
	assert.Equal(t, "/IPAM/IPAcquire", liqoipam.IPAM_IPAcquire_FullMethodName)
}
