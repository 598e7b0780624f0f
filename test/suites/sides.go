package main

import (
	"context"
	"fmt"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// Names of the sides, which are columns of the tables.
const (
	sideStock  = "stock"
	sideDropIn = "drop-in"
	sideChain  = "chain"
	sideBroker = "broker"
)

// Names of federations.
const (
	federationStock  = "suites-stock"
	federationOurs   = "suites-ours"
	federationBroker = "suites-broker"
)

// side is what a suite is run against.
type side struct {
	name, federation string
	// clusters are those that Liqo's suites use: the consumer first, then its providers.
	clusters []string
	// node is the virtual node of cluster sandbox.Broker for virtual-kubelet's suite; empty if it is not run here.
	node string
}

// brokerNode is the Node of the broker.
const brokerNode = "liqo-broker"

func sides() []side {
	twoProviders := []string{sandbox.Broker, sandbox.Provider(1), sandbox.Provider(2)}
	return []side{
		{sideStock, federationStock, twoProviders, sandbox.Provider(1)},
		{sideDropIn, federationOurs, twoProviders, sandbox.Provider(1)},
		{sideChain, federationBroker, []string{sandbox.Consumer(1), sandbox.Broker}, ""},
		{sideBroker, federationBroker, twoProviders, brokerNode},
	}
}

func sideNames() (names []string) {
	for _, s := range sides() {
		names = append(names, s.name)
	}
	return names
}

// start brings up the federation of that name: the cluster of the broker with two providers. Its clusters have the labels that
// Liqo's suites expect of the cluster of their index (Liqo's test/e2e/testutils/util/cluster_labels.go).
func start(ctx context.Context, name string, say func(string, ...any)) (*sandbox.Sandbox, error) {
	opts := sandbox.Options{
		Name: name, Consumers: 1, Providers: 2, Image: sandbox.ImageOurs, KubeletMetrics: true, Progress: say,
		LocalNodes: []string{sandbox.Broker},
		ClusterLabels: map[string]map[string]string{
			sandbox.Broker:      {"provider": "Azure", "region": "A"},
			sandbox.Provider(1): {"provider": "AWS", "region": "B"},
			sandbox.Provider(2): {"provider": "GKE", "region": "C"},
		},
	}
	switch name {
	case federationStock:
		opts.Image = sandbox.ImageStock
	case federationBroker:
		opts.BrokerNode = brokerNode
		opts.LocalNodes = append(opts.LocalNodes, sandbox.Consumer(1))
	}
	s, err := sandbox.Up(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("federation %s: %w", name, err)
	}
	return s, nil
}

// place is one side of a running federation.
type place struct {
	side
	*sandbox.Sandbox
	logs string
	say  func(string, ...any)
}
