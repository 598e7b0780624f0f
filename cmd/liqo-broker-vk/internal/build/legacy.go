package build

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
)

// LegacyProgram is the virtual kubelet of Liqo v0.x: a file in the directory of this one, and a module of its own
// (kubelet-v0), since no module can have two versions of Liqo.
const LegacyProgram = "liqo-broker-vk-v0"

// LegacyPath is that of the virtual kubelet of Liqo v0.x.
func LegacyPath() (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(executable), LegacyProgram), nil
}

// LegacyLiqo returns the version of Liqo that a virtual kubelet of Liqo v0.x was built with; "" if there is none.
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
