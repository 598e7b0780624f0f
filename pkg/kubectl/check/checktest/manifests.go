// Package checktest has an installation for tests: the objects of the files in deploy.
package checktest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// Installation returns the objects of an installation with the aggregator and the catalog, by the files in a directory that
// has the CRDs and manifests of deploy. The replicas of all Deployments are Ready.
func Installation(deploy string) ([]client.Object, error) {
	var objects []client.Object
	for _, pattern := range []string{
		"crds/*.yaml", "guard.yaml", "broker.yaml", "catalog.yaml", "network-manager.yaml", "virtual-kubelet-options.yaml",
	} {
		paths, err := filepath.Glob(filepath.Join(deploy, pattern))
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("no file %s in %s", pattern, deploy)
		}
		for _, path := range paths {
			more, err := read(path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			objects = append(objects, more...)
		}
	}
	for _, o := range objects {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			continue
		}
		d.Status = appsv1.DeploymentStatus{ReadyReplicas: *d.Spec.Replicas, UpdatedReplicas: *d.Spec.Replicas}
		if d.Name == "liqo-broker" {
			args := &d.Spec.Template.Spec.Containers[0].Args
			*args = append(*args, "--with-aggregator", "--with-catalog")
		}
	}
	return objects, nil
}

// read returns the objects of a file.
func read(path string) (objects []client.Object, err error) {
	scheme, err := apischeme.New()
	if err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme).UniversalDeserializer()
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		decoded, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		o, ok := decoded.(client.Object)
		if !ok {
			return nil, fmt.Errorf("%T is not an API object", decoded)
		}
		objects = append(objects, o)
	}
}
