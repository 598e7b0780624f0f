package main

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// home is the page of the project.
const home = "https://github.com/capacitorset/liqo-broker-vk"

// platformImage is the image of one platform.
type platformImage struct {
	v1.Image
	platform v1.Platform
}

// ArtifactType keeps the index from labelling the image as an artifact, which engines may treat differently.
func (platformImage) ArtifactType() (string, error) { return "", nil }

// labels returns the OCI labels that describe the image.
func labels(r release) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "liqo-broker-vk",
		"org.opencontainers.image.description":   "Broker and virtual kubelet for federations of clusters joined by Liqo",
		"org.opencontainers.image.source":        home,
		"org.opencontainers.image.documentation": home + "/tree/main/docs",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.version":       r.version,
		"org.opencontainers.image.revision":      r.commit,
		"org.opencontainers.image.created":       r.time.Format(time.RFC3339),
	}
}

// imageOf makes an image of one layer. The file of the layer must exist as long as the image.
func imageOf(r release, platform v1.Platform, layer string) (v1.Image, error) {
	content, err := tarball.LayerFromFile(layer, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.time}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		Architecture: platform.Architecture, OS: platform.OS, Variant: platform.Variant, Created: created,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/usr/bin/liqo-broker-vk"},
			User:       "65532:65532", // By number: the kubelet cannot check that a user name is not root.
			WorkingDir: "/",
			Env:        []string{"PATH=/usr/bin"},
			Labels:     labels(r),
		},
	})
	if err != nil {
		return nil, err
	}
	image, err = mutate.Append(image, mutate.Addendum{
		Layer: content, History: v1.History{Created: created, CreatedBy: "make image"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Annotations(image, labels(r)).(v1.Image), nil // The type stays the same.
}

// indexOf combines the platforms' images under one digest.
func indexOf(r release, images []platformImage) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &image.platform},
		})
	}
	return mutate.Annotations(index, labels(r)).(v1.ImageIndex), nil // The type stays the same.
}
