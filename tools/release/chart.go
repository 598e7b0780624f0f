package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

const chartName = "liqo-broker-vk"

// chartArchive is a chart as helm package writes it.
type chartArchive struct {
	// metadata is its Chart.yaml, as JSON. version is the chart's version.
	metadata []byte
	version  string
	content  []byte
}

// writeChart packs the chart with the version of the release, for its image.
func (a artifacts) writeChart(ctx context.Context) (chartArchive, error) {
	c := chartArchive{version: strings.TrimPrefix(a.release.version, "v")}
	root := filepath.Join(a.source, "deploy", "chart", chartName)
	described, err := os.ReadFile(filepath.Join(root, "Chart.yaml"))
	if err != nil {
		return c, err
	}
	var metadata map[string]any
	if err := yaml.Unmarshal(described, &metadata); err != nil {
		return c, fmt.Errorf("the chart's description Chart.yaml: %w", err)
	}
	metadata["version"], metadata["appVersion"] = c.version, a.release.version
	if described, err = yaml.Marshal(metadata); err != nil {
		return c, err
	}
	if c.metadata, err = json.Marshal(metadata); err != nil {
		return c, err
	}
	values, err := os.ReadFile(filepath.Join(root, "values.yaml"))
	if err != nil {
		return c, err
	}
	text, err := withImage(string(values), repositoryOf(a.image), a.digest.String())
	if err != nil {
		return c, err
	}
	entries := []entry{
		{name: chartName + "/Chart.yaml", mode: 0o644, text: string(described)},
		{name: chartName + "/values.yaml", mode: 0o644, text: text},
	}
	// Files that git does not know, such as an editor's, are not of the release.
	files, err := git(ctx, root, "ls-files")
	if err != nil {
		return c, err
	}
	for file := range strings.Lines(files) {
		if file = strings.TrimSpace(file); file != "Chart.yaml" && file != "values.yaml" {
			entries = append(entries, entry{name: path.Join(chartName, file), mode: 0o644, file: filepath.Join(root, file)})
		}
	}
	var packed bytes.Buffer
	if err := writeCompressed(&packed, entries, a.release.time); err != nil {
		return c, err
	}
	c.content = packed.Bytes()
	return c, a.writeFile(chartName+"-"+c.version+".tgz", c.content)
}

// withImage returns the values of the chart with the image of the release. A digest has priority over the tag.
func withImage(values, repository, digest string) (string, error) {
	for before, after := range map[string]string{
		"\n  repository: liqo-broker-vk\n": "\n  repository: " + repository + "\n",
		"\n  digest: \"\"\n":               "\n  digest: " + digest + "\n",
	} {
		if strings.Count(values, before) != 1 {
			return "", fmt.Errorf("values.yaml has no line %q", strings.TrimSpace(before))
		}
		values = strings.Replace(values, before, after, 1)
	}
	return values, nil
}

// Media types of charts in registries (HIP 6 of Helm).
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// MediaType, RawManifest, RawConfigFile and LayerByDigest make a chart an image that can be pushed
// (partial.CompressedImageCore).
func (c chartArchive) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawConfigFile returns the config: Chart.yaml as JSON.
func (c chartArchive) RawConfigFile() ([]byte, error) { return c.metadata, nil }

// RawManifest returns the manifest.
func (c chartArchive) RawManifest() ([]byte, error) {
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	for _, part := range []struct {
		content []byte
		kind    types.MediaType
		to      func(v1.Descriptor)
	}{
		{c.metadata, chartConfig, func(d v1.Descriptor) { manifest.Config = d }},
		{c.content, chartContent, func(d v1.Descriptor) { manifest.Layers = []v1.Descriptor{d} }},
	} {
		hash, size, err := v1.SHA256(bytes.NewReader(part.content))
		if err != nil {
			return nil, err
		}
		part.to(v1.Descriptor{MediaType: part.kind, Size: size, Digest: hash})
	}
	return json.Marshal(manifest)
}

// LayerByDigest returns the only layer, or the config.
func (c chartArchive) LayerByDigest(hash v1.Hash) (partial.CompressedLayer, error) {
	config, _, err := v1.SHA256(bytes.NewReader(c.metadata))
	if err != nil {
		return nil, err
	}
	if hash == config {
		return static.NewLayer(c.metadata, chartConfig), nil
	}
	return static.NewLayer(c.content, chartContent), nil
}

// push uploads the chart, by default to charts/liqo-broker-vk beside the image, and prints how Helm installs it.
func (c chartArchive) push(ctx context.Context, chart string, image name.Tag, stdout io.Writer) error {
	if chart == "" {
		chart = path.Join(path.Dir(image.Repository.Name()), "charts", chartName)
	}
	tag, err := name.NewTag(chart + ":" + c.version)
	if err != nil {
		return fmt.Errorf("the name of the chart (CHART=, -chart): %w", err)
	}
	packed, err := partial.CompressedToImage(c)
	if err != nil {
		return err
	}
	err = remote.Write(tag, packed, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	_, err = fmt.Fprintf(stdout, "helm install liqo-broker oci://%s --version %s --namespace liqo-broker\n",
		repositoryOf(tag), c.version)
	return err
}
