// Package liqov0 runs the virtual kubelet of Liqo v0.x on a real control plane with the CRDs of Liqo v0.9.4. None of Liqo's
// controllers run: who uses it does what they do.
package liqov0

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/controlplane"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/ports"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// fieldOwner applies the CRDs.
const fieldOwner = "sandbox"

// Cluster is a control plane with the CRDs of Liqo v0.9.4.
type Cluster struct {
	Config *rest.Config
	plane  *controlplane.Cluster
	group  *proc.Group
	ports  *ports.Pool
	dir    string
	vk     string
}

// Start boots a cluster with its state below dir, and builds the image's programs. progress gets a line for each build of a
// binary that is kept.
func Start(ctx context.Context, dir string, progress func(format string, args ...any)) (*Cluster, error) {
	bin, err := binaries.Ensure(ctx, progress)
	if err != nil {
		return nil, err
	}
	records := filepath.Join(dir, "processes")
	for _, sub := range []string{records, filepath.Join(dir, "cluster", "logs")} {
		if err := os.MkdirAll(sub, 0o700); err != nil {
			return nil, err
		}
	}
	c := &Cluster{dir: dir, group: proc.NewGroup(records), ports: ports.NewPool()}
	if err := c.start(ctx, filepath.Join(bin, binaries.Kube)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, kube string) (err error) {
	if c.vk, err = binaries.BuildImage(ctx, c.dir); err != nil {
		return err
	}
	if c.plane, err = controlplane.New(controlplane.Config{
		Name: "liqo-v0", Dir: filepath.Join(c.dir, "cluster"), Binary: kube, ServiceCIDR: "10.100.0.0/16",
		Group: c.group, Ports: c.ports,
	}); err != nil {
		return err
	}
	if err := c.plane.Start(ctx); err != nil {
		return err
	}
	if c.Config, err = c.plane.RESTConfig(); err != nil {
		return err
	}
	return c.installCRDs(ctx)
}

// installCRDs applies those of Liqo's chart, and waits until they are served.
func (c *Cluster) installCRDs(ctx context.Context) error {
	source, err := binaries.LiqoV0Source(ctx)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(source, "deployments", "liqo", "crds", "*.yaml"))
	if err != nil {
		return err
	}
	cl, err := client.New(c.Config, client.Options{})
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := cl.Create(ctx, crd, client.FieldOwner(fieldOwner)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := served(ctx, cl, crd.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// served waits until the API server serves a CRD.
func served(ctx context.Context, cl client.Client, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		if err := cl.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, condition := range conditions {
			if of, ok := condition.(map[string]any); ok && of["type"] == "Established" && of["status"] == "True" {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the CRD %s is not served: %w", name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// URL and CA are those of the API server.
func (c *Cluster) URL() string { return c.plane.URL() }

// CA is the cluster's, in PEM.
func (c *Cluster) CA() []byte { return c.plane.CA() }

// Client returns the credentials of a user.
func (c *Cluster) Client(user string, groups ...string) (*rest.Config, error) {
	return c.plane.NewClientConfig(user, groups...)
}

// Port returns a free port.
func (c *Cluster) Port() (int, error) { return c.ports.Free() }

// VirtualKubelet starts /usr/bin/virtual-kubelet of the image, as an administrator of the cluster, and returns its log file
// and what ends it.
func (c *Cluster) VirtualKubelet(name string, args ...string) (log string, stop func(), err error) {
	log = filepath.Join(c.dir, "cluster", "logs", name+".log")
	process, err := c.group.Start(proc.Spec{
		Name: name, Path: c.vk, Args: args, Log: log,
		Env: []string{"KUBECONFIG=" + c.plane.Kubeconfig(), "POD_NAME=" + name, "TMPDIR=" + c.dir},
	})
	if err != nil {
		return "", nil, err
	}
	return log, func() { process.Stop(10 * time.Second) }, nil
}

// Close ends everything.
func (c *Cluster) Close() {
	c.group.Close()
	c.ports.Close()
}
