package kubelet

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
)

// LegacyFlag returns a flag among the arguments that the controller manager of Liqo v0.x passes and Liqo v1's does not;
// "" if there is none. Liqo v0.x always passes the names of both clusters (pkg/vkMachinery/forge in v0.9.4).
func LegacyFlag(args []string) string {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return "" // The arguments start with a command.
	}
	for _, arg := range args {
		switch flag, _, _ := strings.Cut(arg, "="); flag {
		case "--home-cluster-name", "--foreign-cluster-name", "--ipam-server":
			return flag
		}
	}
	return ""
}

// ExecLegacy replaces this process with the virtual kubelet of Liqo v0.x. It only returns on an error.
func ExecLegacy(flag string, args []string) error {
	path, err := build.LegacyPath()
	if err == nil {
		failed := syscall.Exec(path, append([]string{"virtual-kubelet"}, args...), os.Environ()) //nolint:gosec // As it was started.
		err = &os.PathError{Op: "exec", Path: path, Err: failed}
	}
	return fmt.Errorf("%s is a flag of Liqo v0.x, whose virtual kubelet is a separate program: %w", flag, err)
}

// notReflected are the flags of Liqo v0.x whose values v1 has on the VirtualNode instead.
type notReflected struct{ labels, annotations []string }

func (o *notReflected) install(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.labels, "labels-not-reflected", nil,
		"The keys of labels that are not reflected to the remote cluster, in addition to the keys in the VirtualNode")
	flags.StringSliceVar(&o.annotations, "annotations-not-reflected", nil,
		"The keys of annotations that are not reflected to the remote cluster, in addition to the keys in the VirtualNode")
}
