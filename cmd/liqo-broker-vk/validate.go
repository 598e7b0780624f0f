package main

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
)

// faults collects what is wrong with the options, so that one start reports all of it.
type faults []string

// err returns nil if there are none.
func (f faults) err() error {
	if len(f) > 0 {
		return f
	}
	return nil
}

func (f *faults) add(what, remedy string) {
	*f = append(*f, what+": "+remedy)
}

// when adds a fault if something is wrong.
func (f *faults) when(wrong bool, what, remedy string) {
	if wrong {
		f.add(what, remedy)
	}
}

func (f *faults) require(value, what, remedy string) {
	f.when(value == "", what+" is empty", remedy)
}

func (f *faults) oneOf(flag, value string, values ...string) {
	f.when(!slices.Contains(values, value), fmt.Sprintf("%s=%s", flag, value), "use one of "+strings.Join(values, ", "))
}

func (f *faults) address(flag, value string) {
	if _, _, err := net.SplitHostPort(value); err != nil {
		f.add(fmt.Sprintf("%s=%s", flag, value), "use HOST:PORT or :PORT")
	}
}

func (f *faults) cidrs(flag string, values []string) {
	for _, cidr := range values {
		_, err := netip.ParsePrefix(cidr)
		f.when(err != nil, flag+"="+cidr, "use ADDRESS/BITS")
	}
}

// servedAddress accepts 0, which disables the server.
func (f *faults) servedAddress(flag, value string) {
	if served(value) != "" {
		f.address(flag, value)
	}
}

func (f *faults) selector(flag, value string) {
	if _, err := labels.Parse(value); err != nil {
		f.add(flag+"="+value, "use a label selector: "+err.Error())
	}
}

func (f *faults) pair(flag1, value1, flag2, value2 string) {
	f.when((value1 == "") != (value2 == ""), "only one of "+flag1+" and "+flag2+" is given", "give both or none")
}

func (f *faults) exclusive(flag1 string, set1 bool, flag2 string, set2 bool) {
	f.when(set1 && set2, flag1+" together with "+flag2, "leave one of them out")
}

func (f *faults) atLeastASecond(flag string, value time.Duration) {
	f.when(value < time.Second, fmt.Sprintf("%s=%s", flag, value), "use at least 1s")
}

func (f *faults) positive(flag string, value time.Duration) {
	f.when(value <= 0, fmt.Sprintf("%s=%s", flag, value), "use a duration above 0")
}

// limit is for a flag whose value must be above 0. NaN is not.
func (f *faults) limit(flag string, value float64) {
	f.when(!(value > 0), fmt.Sprintf("%s=%v", flag, value), "use a number above 0")
}

// Error implements error: all faults in one line.
func (f faults) Error() string { return strings.Join(f, "; ") }

// validate returns all faults as one error.
func (o *options) validate() error {
	var f faults
	o.validateIdentity(&f)
	o.validateBrokerNode(&f)
	o.validateAddresses(&f)
	o.validateReflection(&f)
	o.validateTimes(&f)
	o.validateServers(&f)
	o.tracing.validate(&f)
	return f.err()
}

func (o *options) validateIdentity(f *faults) {
	s := o.stock
	f.require(string(s.HomeCluster.GetClusterID()), "--home-cluster-id", "give the id of this cluster")
	f.require(string(s.ForeignCluster.GetClusterID()), "--foreign-cluster-id", "give the id of the remote cluster")
	f.require(s.NodeName, "--nodename", "give the name of the virtual node")
	f.require(s.TenantNamespace, "--tenant-namespace", "give the tenant namespace of the remote cluster")
	f.require(s.LiqoNamespace, "--liqo-namespace", "give the namespace of Liqo")
	f.require(s.RemoteKubeconfigSecretName, "--foreign-kubeconfig-secret-name",
		"give the name of the Secret with the kubeconfig of the remote cluster")
	f.require(o.virtualNode, "environment variable VIRTUALNODE_NAME", "set it to the name of the VirtualNode")
	f.require(o.podNamespace, "environment variable POD_NAMESPACE", "set it to the namespace of the VirtualNode")
	f.require(s.PodName, "environment variable POD_NAME", "set it to a name that no other replica has")
	f.when(net.ParseIP(s.NodeIP) == nil, fmt.Sprintf("--node-ip=%s", s.NodeIP), "give the IP address of this pod")
}

func (o *options) validateBrokerNode(f *faults) {
	if o.brokerNode == "" {
		f.when(o.tracing.endpoint != "", "--tracing-endpoint="+o.tracing.endpoint,
			"give it to the virtual kubelets of a broker's node, with --broker-node: only their pods are traced")
		return
	}
	if problems := apivalidation.NameIsDNSSubdomain(o.brokerNode, false); len(problems) > 0 {
		f.add("--broker-node="+o.brokerNode, "give the name of a node: "+strings.Join(problems, ", "))
	}
	f.when(o.brokerNode == o.stock.NodeName, "--broker-node and --nodename are both "+o.brokerNode,
		"give the broker's node a name that no VirtualNode has: Liqo recognises its remote pods by --nodename")
	f.when(o.stock.CreateNode, "--create-node=true together with --broker-node="+o.brokerNode,
		"set createNode: false in the VkOptionsTemplate (or in the VirtualNode): the node is the broker's")
	if problems := validation.IsValidLabelValue(o.virtualNode); len(problems) > 0 {
		f.add("environment variable VIRTUALNODE_NAME="+o.virtualNode,
			"use a VirtualNode whose name can be the value of a label: "+strings.Join(problems, ", "))
	}
}

func (o *options) validateAddresses(f *faults) {
	if o.opaqueAddresses && o.brokerNode == "" {
		f.add("--opaque-addresses=true", "give it to the virtual kubelets of a broker's node, with --broker-node")
	}
	if _, err := o.table(); err != nil {
		f.add("--remote-pod-cidr, --remote-external-cidr: "+err.Error(), "give each with its --…-remap, in the same order")
	}
	f.cidrs("--remote-cidr", o.remoteCIDRs)
	if o.remoteIPAM == "" {
		const remedy = "give --remote-ipam, too"
		f.when(o.remoteIPAMCA != "", "--remote-ipam-ca="+o.remoteIPAMCA, remedy)
		f.when(o.remoteIPAMServerName != "", "--remote-ipam-server-name="+o.remoteIPAMServerName, remedy)
		f.when(o.remoteIPAMInsecure, "--remote-ipam-insecure=true", remedy)
		return
	}
	if _, err := ipam.ParseRemote(o.remoteIPAM); err != nil {
		flag, remedy, _ := strings.Cut(err.Error(), ": ")
		f.add(flag, remedy)
	}
	if o.remoteIPAMInsecure && (o.remoteIPAMCA != "" || o.remoteIPAMServerName != "") {
		f.add("--remote-ipam-insecure=true", "leave out --remote-ipam-ca and --remote-ipam-server-name: nothing is checked")
	}
}

func (o *options) validateReflection(f *faults) {
	f.cidrs("--local-podcidr", o.stock.LocalPodCIDRs)
	for _, resource := range resources.ReflectorsCustomizableType {
		f.oneOf(fmt.Sprintf("--%s-reflection-type", resource), *o.stock.ReflectorsType[string(resource)],
			string(offloadingv1beta1.DenyList), string(offloadingv1beta1.AllowList))
	}
}

func (o *options) validateTimes(f *faults) {
	s := o.stock
	f.positive("--vk-lease-duration", s.VirtualKubeletLeaseLeaseDuration)
	f.positive("--vk-lease-renew-interval", s.VirtualKubeletLeaseRenewDeadline)
	f.positive("--vk-lease-retry-period", s.VirtualKubeletLeaseRetryPeriod)
	if s.VirtualKubeletLeaseRenewDeadline >= s.VirtualKubeletLeaseLeaseDuration {
		f.add("--vk-lease-renew-interval is not below --vk-lease-duration", "lower the first or raise the second")
	}
	// client-go adds jitter of a factor 1.2 to the retry period.
	if s.VirtualKubeletLeaseRetryPeriod*6/5 >= s.VirtualKubeletLeaseRenewDeadline {
		f.add("--vk-lease-retry-period is not well below --vk-lease-renew-interval", "lower the first or raise the second")
	}
	f.atLeastASecond("--node-lease-duration", s.NodeLeaseDuration)
	if s.NodePingInterval < 0 {
		f.add(fmt.Sprintf("--node-ping-interval=%s", s.NodePingInterval), "use 0 to disable, or a duration")
	}
	f.positive("--node-ping-timeout", s.NodePingTimeout)
	f.positive("--startup-timeout", o.startupTimeout)
	f.when(o.requestTimeout < 0, fmt.Sprintf("--request-timeout=%s", o.requestTimeout), "use 0 for none, or a duration")
}

func (o *options) validateServers(f *faults) {
	o.processOptions.validate(f)
	o.kubeletOptions.validate(f, o.stock.ListenPort)
	if o.stock.EnableMetrics {
		f.address("--metrics-address", o.stock.MetricsAddress)
	}
	if o.stock.EnableProfiling {
		f.address("--profiling-address", o.profilingAddress)
	}
}
