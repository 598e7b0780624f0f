package main

import (
	"slices"
	"strings"
)

// note is the reason why tests do not pass on some sides.
type note struct {
	pkg string
	// test is a part of the test's name; empty for the whole package.
	test  string
	sides []string
	why   string
}

func (n note) covers(r row, side string) bool {
	return n.pkg == r.Package && strings.Contains(r.Test, n.test) && slices.Contains(n.sides, side)
}

// nodesOfVirtualKubelets are the sides on which virtual-kubelet's suite runs.
var nodesOfVirtualKubelets = []string{stock, dropIn, broker}

var notes = []note{
	{
		kubeletSuite, "Inexistent", nodesOfVirtualKubelets,
		"it waits for an event of virtual-kubelet's pod controller, which Liqo's virtual kubelet, and so ours, does not run",
	},
	{kubeletSuite, "TestGetStatsSummary", nodesOfVirtualKubelets, "the sandbox has no metrics-server"},
	{kubeletSuite, "TestGetMetricsResource", nodesOfVirtualKubelets, "the sandbox has no metric agent of Liqo"},
	{"kubernetes", "increment per update", nodesOfVirtualKubelets, "KWOK does not report observedGeneration"},
	{
		realPods, "serve a basic image", nodesOfVirtualKubelets,
		"it asks the pods by the proxy of the API server, which is in another network",
	},
	{realPods, "variable names", nodesOfVirtualKubelets, badNames},
	{realPods, "consumable via the environment", nodesOfVirtualKubelets, badNames},
	{realPods, "Ephemeral Containers", nodesOfVirtualKubelets, notForwarded},
	{realPods, "activeDeadlineSeconds to be updated", nodesOfVirtualKubelets, notForwarded},
	{
		realPods, "KubeletManagedEtcHosts", nodesOfVirtualKubelets,
		"Liqo does not forward `hostNetwork`, so the pod has a file of its own",
	},
	{
		realPods, "increment per update", nodesOfVirtualKubelets,
		"it replaces all tolerations, and Liqo's webhook has added one that may not be removed",
	},
	{realPods, "EmptyDir volumes / should support (root,0644,tmpfs)", []string{stock}, crowded},
	{realPods, "fail on a RestartAlways pod", []string{stock}, crowded},
	{"verifycertrenewal", "", []string{chain}, "the broker's cluster has providers, which the test does not know"},
	{"unoffload", "", []string{chain}, sameNames},
	{"reflection", "", []string{chain}, sameNames},
	{"clusterlabels", "virtual nodes for every cluster", []string{broker}, oneNode},
	{"clusterlabels", "Creating the namespace", []string{broker}, oneNode},
	{"multiplevirtualnodes", "", []string{broker}, oneNode},
	{
		"resourceenforcement", "Should drain the pods",
		[]string{broker},
		"it expects the pod to fail and to be replaced, and the broker moves it",
	},
	{"unoffload", "", []string{broker}, "it reads the provider from a label of the Node, and the broker's Node is of all providers"},
}

// realPods is the package for federations with real containers.
const realPods = "kubernetes-containers"

const (
	notForwarded = "a change that no virtual kubelet forwards"
	crowded      = "its namespace was not at the provider within 30 s: two federations shared two cores"
	badNames     = "the shell of Debian's busybox drops variables whose names are no identifiers"

	oneNode   = "it expects a Node for each provider, and the broker has one for all"
	sameNames = "it offloads by `EnforceSameName`, which the guard of a broker's cluster refuses without `guard.sameNames`"
)
