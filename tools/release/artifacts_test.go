package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// newRepository returns a clone with the sources of all artifacts, and the tag v0.1.0.
func newRepository(t *testing.T) clone {
	t.Helper()
	c := newClone(t)
	for _, overlay := range overlays() {
		c.write("deploy/kustomize/"+overlay+"/kustomization.yaml", "resources: [pod.yaml]\n")
		c.write("deploy/kustomize/"+overlay+"/pod.yaml",
			"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: 'liqo-broker-vk:dev'}]}\n")
	}
	for _, file := range consumerFiles() {
		c.write("deploy/consumer/"+file, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {image: 'liqo-broker-vk:dev'}\n")
	}
	c.write("deploy/chart/liqo-broker-vk/Chart.yaml", "apiVersion: v2\nname: liqo-broker-vk\nversion: 0.0.1\nappVersion: dev\n")
	c.write("deploy/chart/liqo-broker-vk/values.yaml", "image:\n  repository: liqo-broker-vk\n  digest: \"\"\n")
	c.write("deploy/chart/liqo-broker-vk/templates/pod.yaml", "kind: Pod\n")
	c.commit("Add manifests and a chart")
	c.git("tag", "v0.1.0")
	return c
}

// release makes a release of a clone, and returns the directory of its files.
func (c clone) release(args ...string) string {
	c.t.Helper()
	directory := filepath.Join(c.t.TempDir(), "artifacts")
	all := append([]string{
		"-source=" + c.dir, "-version=v0.1.0", "-platforms=linux/amd64", "-artifacts=" + directory, "-image=registry.test/a/vk",
	}, args...)
	require.NoError(c.t, run(c.t.Context(), all, io.Discard))
	return directory
}

func TestAReleaseHasAllItsFiles(t *testing.T) {
	host := newRegistry(t, "me", "secret")
	logIn(t, host, "me", "secret")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	keyFile := filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600))
	c := newRepository(t)

	directory := c.release("-image="+host+"/federation/liqo-broker-vk", "-push", "-key="+keyFile)

	files := map[string][]byte{}
	list, err := os.ReadDir(directory)
	require.NoError(t, err)
	for _, file := range list {
		files[file.Name()], err = os.ReadFile(filepath.Join(directory, file.Name()))
		require.NoError(t, err)
	}
	require.Equal(t, []string{
		"SHA256SUMS", "SHA256SUMS.pub", "SHA256SUMS.sig", "consumer-virtual-kubelet-addresses.yaml", "consumer-virtual-kubelet-auth.yaml",
		"consumer-virtual-kubelet-options.yaml",
		"image.txt", "install-aggregator.yaml", "install-all-sidecar.yaml", "install-all.yaml", "install-catalog.yaml",
		"install-orchestrator.yaml", "liqo-broker-vk-0.1.0.tgz", "liqo-broker-vk-v0.1.0.oci.tar",
		"liqo-broker-vk_v0.1.0_darwin_amd64.spdx.json", "liqo-broker-vk_v0.1.0_darwin_amd64.tar.gz",
		"liqo-broker-vk_v0.1.0_darwin_arm64.spdx.json", "liqo-broker-vk_v0.1.0_darwin_arm64.tar.gz",
		"liqo-broker-vk_v0.1.0_image.spdx.json",
		"liqo-broker-vk_v0.1.0_linux_amd64.spdx.json", "liqo-broker-vk_v0.1.0_linux_amd64.tar.gz",
		"liqo-broker-vk_v0.1.0_linux_arm64.spdx.json", "liqo-broker-vk_v0.1.0_linux_arm64.tar.gz",
		"liqo-broker-vk_v0.1.0_windows_amd64.spdx.json", "liqo-broker-vk_v0.1.0_windows_amd64.zip",
		"liqo-broker-vk_v0.1.0_windows_arm64.spdx.json", "liqo-broker-vk_v0.1.0_windows_arm64.zip",
		"liqo-broker.yaml",
	}, slices.Sorted(maps.Keys(files)))

	t.Run("sha256sum accepts the checksums", func(t *testing.T) {
		check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		check.Dir = directory
		out, err := check.CombinedOutput()
		require.NoError(t, err, string(out))
		require.Equal(t, len(files)-3, strings.Count(string(out), ": OK"), "all but the three files of the checksums")
	})
	t.Run("the key has signed the checksums", func(t *testing.T) {
		signature, err := base64.StdEncoding.DecodeString(string(files["SHA256SUMS.sig"]))
		require.NoError(t, err)
		block, _ := pem.Decode(files["SHA256SUMS.pub"])
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		require.NoError(t, err)
		hash := sha256.Sum256(files["SHA256SUMS"])
		require.True(t, key.PublicKey.Equal(public))
		require.True(t, ecdsa.VerifyASN1(&key.PublicKey, hash[:], signature))
		hash[0]++
		require.False(t, ecdsa.VerifyASN1(&key.PublicKey, hash[:], signature))
	})
	image := strings.TrimSpace(string(files["image.txt"]))
	t.Run("the registry has the image by its digest", func(t *testing.T) {
		ref, err := name.NewDigest(image)
		require.NoError(t, err)
		_, err = remote.Index(ref, remote.WithAuth(basic("me", "secret")))
		require.NoError(t, err)
	})
	t.Run("the files for kubectl have the image by its digest", func(t *testing.T) {
		for _, overlay := range overlays() {
			require.Contains(t, string(files["install-"+overlay+".yaml"]), "image: "+image)
		}
		require.Contains(t, string(files["consumer-virtual-kubelet-options.yaml"]), image)
	})
	t.Run("the programs are in the archives", func(t *testing.T) {
		require.Equal(t, []string{"LICENSE", "liqo-broker-vk"}, tarred(t, files["liqo-broker-vk_v0.1.0_darwin_arm64.tar.gz"]))
		archive := files["liqo-broker-vk_v0.1.0_windows_amd64.zip"]
		zipped, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
		require.NoError(t, err)
		require.Equal(t, "liqo-broker-vk.exe", zipped.File[1].Name)
		require.Equal(t, os.FileMode(0o755), zipped.File[1].Mode())
	})
	t.Run("the bills name the standard library", func(t *testing.T) {
		bill, err := spdxjson.Read(bytes.NewReader(files["liqo-broker-vk_v0.1.0_image.spdx.json"]))
		require.NoError(t, err)
		require.Equal(t, "stdlib", bill.Packages[1].PackageName)
		require.Len(t, bill.Relationships, 2)
	})
	t.Run("krew finds each archive", func(t *testing.T) {
		var p plugin
		require.NoError(t, yaml.UnmarshalStrict(files["liqo-broker.yaml"], &p))
		require.Len(t, p.Spec.Platforms, len(commandPlatforms))
		for _, platform := range p.Spec.Platforms {
			name := filepath.Base(platform.URI)
			require.Contains(t, string(files["SHA256SUMS"]), platform.SHA256+"  "+name+"\n")
		}
	})
	t.Run("the registry has the chart as Helm reads it", func(t *testing.T) {
		ref, err := name.NewTag(host + "/federation/charts/liqo-broker-vk:0.1.0")
		require.NoError(t, err)
		pulled, err := remote.Image(ref, remote.WithAuth(basic("me", "secret")))
		require.NoError(t, err)
		manifest, err := pulled.Manifest()
		require.NoError(t, err)
		require.Equal(t, chartConfig, manifest.Config.MediaType)
		require.Equal(t, chartContent, manifest.Layers[0].MediaType)
		config, err := pulled.RawConfigFile()
		require.NoError(t, err)
		var metadata map[string]string
		require.NoError(t, json.Unmarshal(config, &metadata))
		require.Equal(t, map[string]string{
			"apiVersion": "v2", "name": "liqo-broker-vk", "version": "0.1.0", "appVersion": "v0.1.0",
		}, metadata)
		layer, err := pulled.LayerByDigest(manifest.Layers[0].Digest)
		require.NoError(t, err)
		content, err := layer.Compressed()
		require.NoError(t, err)
		defer content.Close()
		packed, err := io.ReadAll(content)
		require.NoError(t, err)
		require.Equal(t, files["liqo-broker-vk-0.1.0.tgz"], packed)
		require.Equal(t,
			[]string{"liqo-broker-vk/Chart.yaml", "liqo-broker-vk/values.yaml", "liqo-broker-vk/templates/pod.yaml"}, tarred(t, packed))
		repository, digest, _ := strings.Cut(strings.Replace(image, ":v0.1.0", "", 1), "@")
		require.Equal(t, "image:\n  repository: "+repository+"\n  digest: "+digest+"\n", textOf(t, packed, "liqo-broker-vk/values.yaml"))
	})
}

// tarred returns the names in a compressed tar file.
func tarred(t *testing.T, archive []byte) (names []string) {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return names
		}
		require.NoError(t, err)
		names = append(names, header.Name)
	}
}

// textOf returns a file of a compressed tar file.
func textOf(t *testing.T, archive []byte, name string) string {
	t.Helper()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	require.NoError(t, err)
	for reader := tar.NewReader(unzipped); ; {
		header, err := reader.Next()
		require.NoError(t, err)
		if header.Name == name {
			text, err := io.ReadAll(reader)
			require.NoError(t, err)
			return string(text)
		}
	}
}

func TestTheSameTagIsTheSameRelease(t *testing.T) {
	c := newRepository(t)
	other := c.again()
	c.write(".git/info/exclude", "*.swp\n")
	c.write("deploy/chart/liqo-broker-vk/.values.yaml.swp", "an editor's")
	sums := func(directory string) string {
		text, err := os.ReadFile(filepath.Join(directory, checksumsFile))
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, sums(c.release()), sums(other.release()))
}

func TestRefusedReleases(t *testing.T) {
	c := newRepository(t)
	there := t.TempDir()
	next := filepath.Join(there, "next")
	for name, tc := range map[string]struct {
		args    []string
		message string
	}{
		"no version":              {[]string{"-image=r.test/vk:v1"}, `a semantic version such as v0.1.0 (VERSION=, -version), not ""`},
		"a version without a v":   {[]string{"-version=0.1.0"}, "a semantic version"},
		"half a version":          {[]string{"-version=v0.1"}, "a semantic version"},
		"a version without a tag": {[]string{"-version=v0.2.0"}, "the commit has no tag v0.2.0"},
		"another tag":             {[]string{"-version=v0.1.0", "-image=r.test/vk:latest"}, "the image's tag (IMAGE=, -image) is latest"},
		"no registry":             {[]string{"-version=v0.1.0", "-image=vk"}, "needs an image name with a registry"},
		"a chart on Docker Hub":   {[]string{"-version=v0.1.0", "-image=me/vk", "-push"}, "give the chart one (CHART=, -chart)"},
		"a directory with files":  {[]string{"-version=v0.1.0", "-artifacts=" + there}, "is there: remove " + there},
		"a key that is not there": {[]string{"-version=v0.1.0", "-key=/nowhere"}, "the signing key"},
		"an archive elsewhere":    {[]string{"-version=v0.1.0", "-output=x"}, "-output: the archive of a release"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-source=" + c.dir, "-artifacts=" + next, "-image=r.test/vk"}, tc.args...)
			require.ErrorContains(t, run(t.Context(), args, io.Discard), tc.message)
			require.NoDirExists(t, next)
		})
	}
	require.ErrorContains(t, run(t.Context(), []string{"-source=" + c.dir, "-key=x"}, io.Discard), "which is not given")
	c.write("new", "")
	err := run(t.Context(), []string{"-source=" + c.dir, "-version=v0.1.0", "-image=r.test/vk", "-artifacts=" + next}, io.Discard)
	require.ErrorContains(t, err, "a clean tree")
}

func TestAFailedReleasePublishesNothing(t *testing.T) {
	c := newRepository(t)
	c.write("cmd/liqo-broker-vk/other_windows.go", "package main\n\nfunc init() { nothing() }\n")
	c.commit("Break one platform")
	c.git("tag", "--force", "v0.1.0")
	host := newRegistry(t, "me", "secret")
	logIn(t, host, "me", "secret")
	directory := filepath.Join(t.TempDir(), "artifacts")
	err := run(t.Context(), []string{
		"-source=" + c.dir, "-version=v0.1.0", "-platforms=linux/amd64", "-image=" + host + "/a/vk", "-artifacts=" + directory, "-push",
	}, io.Discard)
	require.ErrorContains(t, err, "windows/amd64: go build")
	require.NoDirExists(t, directory)
	ref, err := name.NewTag(host + "/a/vk:v0.1.0")
	require.NoError(t, err)
	_, err = remote.Index(ref, remote.WithAuth(basic("me", "secret")))
	require.ErrorContains(t, err, "NAME_UNKNOWN")
}
