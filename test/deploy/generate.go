package deploy

import (
	"os"
	"path/filepath"
)

// Generated returns the generated files by their paths below deploy/: kustomize's from the templates of the chart,
// including comments, and in the chart the copies of files outside of it, because Helm reads only the chart's
// directory.
func (d Directory) Generated() (map[string][]byte, error) {
	// The base is the orchestrator; the components have the files for the other services.
	base, err := d.files(Namespace, Values(Orchestrator))
	if err != nil {
		return nil, err
	}
	whole, err := d.files(Namespace, Values(All))
	if err != nil {
		return nil, err
	}
	made := map[string][]byte{}
	for file, text := range map[string]string{
		"kustomize/base/guard.yaml":                            base["guard.yaml"],
		"kustomize/base/broker.yaml":                           base["broker.yaml"],
		"kustomize/base/virtual-kubelet-options.yaml":          base["virtual-kubelet-options.yaml"],
		"kustomize/components/catalog/catalog.yaml":            whole["catalog.yaml"],
		"kustomize/components/aggregator/network-manager.yaml": whole["network-manager.yaml"],
		"kustomize/components/aggregator/classes.yaml":         whole["classes.yaml"],
	} {
		head := "# Made from deploy/chart/liqo-broker-vk/templates/" + filepath.Base(file) + " (make generate).\n#\n"
		made[file] = []byte(head + text)
	}
	for _, pattern := range []string{
		"crds/*_*.yaml", "observability/monitors.yaml", "observability/rules.yaml", "observability/*-configmap.yaml",
	} {
		if err := d.copies(pattern, made); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (d Directory) copies(pattern string, made map[string][]byte) error {
	names, err := filepath.Glob(filepath.Join(string(d), filepath.FromSlash(pattern)))
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(string(d), name)
		if err != nil {
			return err
		}
		made["chart/liqo-broker-vk/files/"+filepath.ToSlash(below)] = text
	}
	return nil
}

// Generate writes the generated files.
func (d Directory) Generate() error {
	made, err := d.Generated()
	if err != nil {
		return err
	}
	for file, text := range made {
		file = filepath.Join(string(d), filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
