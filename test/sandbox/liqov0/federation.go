// Package liqov0 runs clusters with Liqo v0.9.4: real control planes, and Liqo's controller manager, CRD replicator,
// authentication service and network manager from its own chart. Peerings are the objects that liqoctl writes. There
// are no gateways: the sandbox writes a cluster's keys and the state of a tunnel in their place.
package liqov0

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/ports"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// Images of virtual kubelets.
const (
	ImageOurs  = sandbox.ImageOurs
	ImageStock = "ghcr.io/liqotech/virtual-kubelet:" + binaries.LiqoV0Version
)

// Spec describes a cluster.
type Spec struct {
	// Name is the cluster's name in Liqo.
	Name string
	// Nodes gives the cluster a simulated node, whose pods run. Without it, the cluster's pods run on the node of its
	// own components.
	Nodes bool
	// KubeletArgs are further arguments of the virtual kubelets, virtualKubelet.extra.args of the chart.
	KubeletArgs []string
}

// Federation is a set of running clusters. They end with Close, and with the process that created them.
type Federation struct {
	Clusters []*Cluster

	dir, bin, liqo string
	images         map[string]nodeagent.Image
	group          *proc.Group
	ports          *ports.Pool

	runCtx     context.Context
	stopRun    context.CancelFunc
	background errgroup.Group
}

// Up creates the clusters and waits until Liqo is ready in each; they are not peered. progress gets a line for each
// step. After an error no process runs.
func Up(ctx context.Context, name string, specs []Spec, progress func(format string, args ...any)) (*Federation, error) {
	f := &Federation{ports: ports.NewPool()}
	var err error
	if f.liqo, f.bin, err = binaries.EnsureV0(ctx, progress); err != nil {
		return nil, err
	}
	if _, err = sandbox.Sweep(); err != nil {
		return nil, err
	}
	if f.dir, err = sandbox.Claim(name); err != nil {
		return nil, err
	}
	f.group = proc.NewGroup(filepath.Join(f.dir, "processes"))
	f.runCtx, f.stopRun = context.WithCancel(context.Background())
	if err := f.boot(ctx, specs); err != nil {
		return nil, errors.Join(fmt.Errorf("%w\nthe logs are kept in %s", err, f.dir), f.end())
	}
	return f, nil
}

func (f *Federation) boot(ctx context.Context, specs []Spec) error {
	ours, err := binaries.BuildImage(ctx, f.dir)
	if err != nil {
		return err
	}
	f.images = f.imageTable(ours)
	group, ctx := errgroup.WithContext(ctx)
	for i, spec := range specs {
		c := &Cluster{Spec: spec, federation: f, index: i + 1}
		f.Clusters = append(f.Clusters, c)
		group.Go(func() error {
			if err := c.start(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// imageTable maps the names of images to programs.
func (f *Federation) imageTable(ours string) map[string]nodeagent.Image {
	kubelet := nodeagent.Port{Argument: "--listen-port=%d", Container: 10250}
	liqo := func(name string) nodeagent.Image { return nodeagent.Image{Binary: filepath.Join(f.liqo, name)} }
	stock := liqo(binaries.LiqoVirtualKubelet)
	stock.Ports = func([]string) []nodeagent.Port { return []nodeagent.Port{kubelet} }
	images := map[string]nodeagent.Image{
		ImageStock: stock,
		ImageOurs:  {Binary: ours, Ports: sandbox.OwnPorts},
	}
	for image, name := range map[string]string{
		"liqo-controller-manager": binaries.LiqoControllerManager, "crd-replicator": binaries.LiqoCRDReplicator,
		"auth-service": binaries.LiqoAuth, "liqonet": binaries.LiqoNet,
	} {
		images["ghcr.io/liqotech/"+image+":"+binaries.LiqoV0Version] = liqo(name)
	}
	return images
}

// Cluster returns the cluster of that name, which must exist.
func (f *Federation) Cluster(name string) *Cluster {
	for _, c := range f.Clusters {
		if c.Name == name {
			return c
		}
	}
	panic("no cluster " + name)
}

// Close ends every process and removes every file.
func (f *Federation) Close() error {
	err := f.end()
	if failed := os.RemoveAll(f.dir); err == nil {
		err = failed
	}
	return err
}

// Dir is the directory with the logs of the clusters.
func (f *Federation) Dir() string { return f.dir }

func (f *Federation) end() error {
	f.stopRun()
	f.group.Close()
	err := f.background.Wait()
	f.ports.Close()
	return err
}
