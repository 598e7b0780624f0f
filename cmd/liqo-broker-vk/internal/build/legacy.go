package build

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
)

// LegacyProgram is the virtual kubelet of Liqo v0.x: a file in the directory of this program, and a separate module
// (kubelet-v0), because one module cannot have two versions of Liqo.
const LegacyProgram = "liqo-broker-vk-v0"

// LegacyPath returns the path of the virtual kubelet of Liqo v0.x.
func LegacyPath() (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(executable), LegacyProgram), nil
}

// LegacyLiqo returns the version of Liqo that the virtual kubelet of Liqo v0.x was built with; "" if that program does
// not exist.
func LegacyLiqo(path string) string {
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
