package main

import (
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// plugin is a manifest of krew (its pkg/index), with the fields that it needs.
type plugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       pluginSpec        `json:"spec"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	Homepage         string           `json:"homepage"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

type pluginPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

// writePlugin writes the manifest with which krew installs the plugin of kubectl. archives are the archives of the
// program by platform.
func (a artifacts) writePlugin(archives map[string]string) error {
	p := plugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: map[string]string{"name": "liqo-broker"},
		Spec: pluginSpec{
			Version: a.release.version, Homepage: home,
			ShortDescription: "Show and change a federation of Liqo clusters",
			Description: "Shows the provider clusters of a Liqo broker and the placements of its pods,\n" +
				"explains decisions, and enables, disables and drains providers.\n",
		},
	}
	for _, platform := range commandPlatforms {
		sum, err := checksum(filepath.Join(a.directory, archives[platform.String()]))
		if err != nil {
			return err
		}
		at := pluginPlatform{
			URI: home + "/releases/download/" + a.release.version + "/" + archives[platform.String()], SHA256: sum, Bin: chartName,
		}
		if platform.OS == "windows" {
			at.Bin += ".exe"
		}
		at.Selector.MatchLabels = map[string]string{"os": platform.OS, "arch": platform.Architecture}
		p.Spec.Platforms = append(p.Spec.Platforms, at)
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return a.writeFile("liqo-broker.yaml", text)
}
