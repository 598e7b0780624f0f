package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
)

// legacyProgram is the virtual kubelet of Liqo v0.x: a file in the directory of this one, and a module of its own
// (kubelet-v0), since no module can have two versions of Liqo.
const legacyProgram = "liqo-broker-vk-v0"

// legacyFlag returns a flag among the arguments that the controller manager of Liqo v0.x passes and that of Liqo v1 does not;
// "" if there is none. Both names of clusters are always passed (pkg/vkMachinery/forge in v0.9.4).
func legacyFlag(args []string) string {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return "" // A command.
	}
	for _, arg := range args {
		switch flag, _, _ := strings.Cut(arg, "="); flag {
		case "--home-cluster-name", "--foreign-cluster-name", "--ipam-server":
			return flag
		}
	}
	return ""
}

// legacyPath is that of the virtual kubelet of Liqo v0.x.
func legacyPath() (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(executable), legacyProgram), nil
}

// execLegacy replaces this process by the virtual kubelet of Liqo v0.x. It returns only an error.
func execLegacy(flag string, args []string) error {
	path, err := legacyPath()
	if err == nil {
		failed := syscall.Exec(path, append([]string{"virtual-kubelet"}, args...), os.Environ()) //nolint:gosec // As it was started.
		err = &os.PathError{Op: "exec", Path: path, Err: failed}
	}
	return fmt.Errorf("%s is a flag of Liqo v0.x, whose virtual kubelet is a program of its own: %w", flag, err)
}

// legacyLiqo returns the version of Liqo that a virtual kubelet of Liqo v0.x was built with; "" if there is none.
func legacyLiqo(path string) string {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == liqoModule {
			if dep.Replace != nil {
				return dep.Replace.Version
			}
			return dep.Version
		}
	}
	return ""
}

// notReflected are the flags of Liqo v0.x that v1 has on the VirtualNode instead.
type notReflected struct{ labels, annotations []string }

func (o *notReflected) install(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.labels, "labels-not-reflected", nil,
		"The keys of labels not to be reflected to the remote cluster, besides those of the VirtualNode")
	flags.StringSliceVar(&o.annotations, "annotations-not-reflected", nil,
		"The keys of annotations not to be reflected to the remote cluster, besides those of the VirtualNode")
}
