package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// developed is the name of the image in the files of deploy/.
const developed = "liqo-broker-vk:dev"

// overlays are the kustomizations below deploy/kustomize that people install, each as one file.
func overlays() []string {
	return []string{"all", "all-sidecar", "aggregator", "catalog", "orchestrator"}
}

// consumerFiles are files below deploy/consumer for the clusters of consumers.
func consumerFiles() []string {
	return []string{"virtual-kubelet-auth.yaml", "virtual-kubelet-addresses.yaml", "virtual-kubelet-options.yaml"}
}

// writeManifests writes the files for kubectl apply, with the image of the release.
func (a artifacts) writeManifests() error {
	deploy := filepath.Join(a.source, "deploy")
	for _, overlay := range overlays() {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
			Run(filesys.MakeFsOnDisk(), filepath.Join(deploy, "kustomize", overlay))
		if err != nil {
			return fmt.Errorf("deploy/kustomize/%s: %w", overlay, err)
		}
		text, err := built.AsYaml()
		if err != nil {
			return fmt.Errorf("deploy/kustomize/%s: %w", overlay, err)
		}
		if !bytes.Contains(text, []byte(developed)) {
			return fmt.Errorf("deploy/kustomize/%s has no image %s", overlay, developed)
		}
		text = bytes.ReplaceAll(text, []byte(developed), []byte(a.imageName()))
		if err := a.writeFile("install-"+overlay+".yaml", text); err != nil {
			return err
		}
	}
	for _, name := range consumerFiles() {
		text, err := os.ReadFile(filepath.Join(deploy, "consumer", name))
		if err != nil {
			return err
		}
		text = bytes.ReplaceAll(text, []byte(developed), []byte(a.imageName()))
		if err := a.writeFile("consumer-"+name, text); err != nil {
			return err
		}
	}
	return nil
}
