package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// Names of the sides, which are the columns of the tables.
const (
	stock  = "stock"
	dropIn = "drop-in"
	chain  = "chain"
	broker = "broker"
)

var sideNames = []string{stock, dropIn, chain, broker}

// brokerNode is the Node of the broker.
const brokerNode = "liqo-broker"

// side is a configuration that the suites run against.
type side struct {
	name string
	// clusters are the clusters that Liqo's suites use: the consumer first, then its providers.
	clusters []string
	// node is the virtual node in cluster sandbox.Broker for virtual-kubelet's suite; empty if that suite is not run.
	node string
	// without is a package that is not run on this side.
	without string
}

// federation is a sandbox, with the sides that are tested in it one after the other.
type federation struct {
	name, image, brokerNode string
	sides                   []side
	// containers is true if a real kubelet in each cluster runs the pods.
	containers bool
}

// federations returns the slowest federation first.
func federations() []federation {
	twoProviders := []string{sandbox.Broker, sandbox.Provider(1), sandbox.Provider(2)}
	return []federation{
		{"suites-broker", sandbox.ImageOurs, brokerNode, []side{
			{name: chain, clusters: []string{sandbox.Consumer(1), sandbox.Broker}},
			// The package reflection creates further VirtualNodes with Nodes, and waits for these without a timeout.
			{name: broker, clusters: twoProviders, node: brokerNode, without: "reflection"},
		}, false},
		{"suites-stock", sandbox.ImageStock, "", []side{{name: stock, clusters: twoProviders, node: sandbox.Provider(1)}}, false},
		{"suites-drop-in", sandbox.ImageOurs, "", []side{{name: dropIn, clusters: twoProviders, node: sandbox.Provider(1)}}, false},
		{"containers-broker", sandbox.ImageOurs, brokerNode, []side{{name: broker, node: brokerNode}}, true},
		{"containers-stock", sandbox.ImageStock, "", []side{{name: stock, node: sandbox.Provider(1)}}, true},
		{"containers-drop-in", sandbox.ImageOurs, "", []side{{name: dropIn, node: sandbox.Provider(1)}}, true},
	}
}

// up starts the sandbox. Its clusters have the labels that Liqo's suites expect for a cluster of their index (Liqo's
// test/e2e/testutils/util/cluster_labels.go). The first cluster of each side has a node of its own for pods that are
// not offloaded.
func (f federation) up(ctx context.Context, images map[string]sandbox.ContainerImage, say func(string, ...any)) (*sandbox.Sandbox, error) {
	machine, providers := machineImages, 2
	if f.containers {
		machine, providers = nil, 1 // Pods at two providers would not reach each other.
	} else {
		images = nil
	}
	s, err := sandbox.Up(ctx, sandbox.Options{
		Name: f.name, Consumers: 1, Providers: providers, Image: f.image, BrokerNode: f.brokerNode, KubeletMetrics: true,
		LocalNodes:    []string{sandbox.Consumer(1), sandbox.Broker},
		MachineImages: machine,
		Containers:    f.containers, ContainerImages: images,
		Progress: func(format string, args ...any) { say(f.name+" "+format, args...) },
		ClusterLabels: map[string]map[string]string{
			sandbox.Broker:      {"provider": "Azure", "region": "A"},
			sandbox.Provider(1): {"provider": "AWS", "region": "B"},
			sandbox.Provider(2): {"provider": "GKE", "region": "C"},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("federation %s: %w", f.name, err)
	}
	return s, nil
}

// place is one side of a running federation.
type place struct {
	side
	*sandbox.Sandbox
	metrics *sync.Mutex
}

// logFile is where the output of a package is kept.
func (at place) logFile(pkg string) string { return filepath.Join(logs, at.name+"-"+pkg+".log") }
