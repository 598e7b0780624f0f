package kubelet

import (
	"fmt"
	"net"
	"strings"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/reflection/resources"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
)

// validate returns all invalid options as one error.
func (o *Options) validate() error {
	var f flags.Faults
	o.validateIdentity(&f)
	o.validateBrokerNode(&f)
	o.validateAddresses(&f)
	o.validateReflection(&f)
	o.validateTimes(&f)
	o.validateServers(&f)
	o.tracing.Validate(&f)
	return f.Err()
}

func (o *Options) validateIdentity(f *flags.Faults) {
	s := o.stock
	f.Require(string(s.HomeCluster.GetClusterID()), "--home-cluster-id", "give the id of this cluster")
	f.Require(string(s.ForeignCluster.GetClusterID()), "--foreign-cluster-id", "give the id of the remote cluster")
	f.Require(s.NodeName, "--nodename", "give the name of the virtual node")
	f.Require(s.TenantNamespace, "--tenant-namespace", "give the tenant namespace of the remote cluster")
	f.Require(s.LiqoNamespace, "--liqo-namespace", "give the namespace of Liqo")
	f.Require(s.RemoteKubeconfigSecretName, "--foreign-kubeconfig-secret-name",
		"give the name of the Secret with the kubeconfig of the remote cluster")
	f.Require(o.virtualNode, "environment variable VIRTUALNODE_NAME", "set it to the name of the VirtualNode")
	f.Require(o.podNamespace, "environment variable POD_NAMESPACE", "set it to the namespace of the VirtualNode")
	f.Require(s.PodName, "environment variable POD_NAME", "set it to a name that no other replica has")
	f.When(net.ParseIP(s.NodeIP) == nil, fmt.Sprintf("--node-ip=%s", s.NodeIP), "give the IP address of this pod")
}

func (o *Options) validateBrokerNode(f *flags.Faults) {
	if o.brokerNode == "" {
		f.When(o.tracing.Endpoint != "", "--tracing-endpoint="+o.tracing.Endpoint,
			"set it only with --broker-node: only the pods of a broker's node are traced")
		return
	}
	if problems := apivalidation.NameIsDNSSubdomain(o.brokerNode, false); len(problems) > 0 {
		f.Add("--broker-node="+o.brokerNode, "give the name of a node: "+strings.Join(problems, ", "))
	}
	f.When(o.brokerNode == o.stock.NodeName, "--broker-node and --nodename are both "+o.brokerNode,
		"give the broker's node a name that no VirtualNode has: Liqo recognises its remote pods by --nodename")
	f.When(o.stock.CreateNode, "--create-node=true together with --broker-node="+o.brokerNode,
		"set createNode: false in the VkOptionsTemplate (or in the VirtualNode): the broker owns the node")
	if problems := validation.IsValidLabelValue(o.virtualNode); len(problems) > 0 {
		f.Add("environment variable VIRTUALNODE_NAME="+o.virtualNode,
			"use a VirtualNode whose name can be the value of a label: "+strings.Join(problems, ", "))
	}
}

func (o *Options) validateAddresses(f *flags.Faults) {
	if o.opaqueAddresses && o.brokerNode == "" {
		f.Add("--opaque-addresses=true", "set it only with --broker-node, for the virtual kubelets of a broker's node")
	}
	if _, err := o.table(); err != nil {
		f.Add("--remote-pod-cidr, --remote-external-cidr: "+err.Error(), "set one --…-remap flag for each, in the same order")
	}
	f.CIDRs("--remote-cidr", o.remoteCIDRs)
	if o.remoteIPAM == "" {
		const remedy = "set --remote-ipam as well"
		f.When(o.remoteIPAMCA != "", "--remote-ipam-ca="+o.remoteIPAMCA, remedy)
		f.When(o.remoteIPAMServerName != "", "--remote-ipam-server-name="+o.remoteIPAMServerName, remedy)
		f.When(o.remoteIPAMInsecure, "--remote-ipam-insecure=true", remedy)
		return
	}
	if _, err := ipam.ParseRemote(o.remoteIPAM); err != nil {
		flag, remedy, _ := strings.Cut(err.Error(), ": ")
		f.Add(flag, remedy)
	}
	if o.remoteIPAMInsecure && (o.remoteIPAMCA != "" || o.remoteIPAMServerName != "") {
		f.Add("--remote-ipam-insecure=true",
			"leave out --remote-ipam-ca and --remote-ipam-server-name: plaintext has no certificate to verify")
	}
}

func (o *Options) validateReflection(f *flags.Faults) {
	f.CIDRs("--local-podcidr", o.stock.LocalPodCIDRs)
	for _, resource := range resources.ReflectorsCustomizableType {
		f.OneOf(fmt.Sprintf("--%s-reflection-type", resource), *o.stock.ReflectorsType[string(resource)],
			string(offloadingv1beta1.DenyList), string(offloadingv1beta1.AllowList))
	}
}

func (o *Options) validateTimes(f *flags.Faults) {
	s := o.stock
	f.Positive("--vk-lease-duration", s.VirtualKubeletLeaseLeaseDuration)
	f.Positive("--vk-lease-renew-interval", s.VirtualKubeletLeaseRenewDeadline)
	f.Positive("--vk-lease-retry-period", s.VirtualKubeletLeaseRetryPeriod)
	if s.VirtualKubeletLeaseRenewDeadline >= s.VirtualKubeletLeaseLeaseDuration {
		f.Add("--vk-lease-renew-interval is not below --vk-lease-duration", "lower the first or raise the second")
	}
	// client-go adds jitter of a factor 1.2 to the retry period.
	if s.VirtualKubeletLeaseRetryPeriod*6/5 >= s.VirtualKubeletLeaseRenewDeadline {
		f.Add("1.2 times --vk-lease-retry-period is not below --vk-lease-renew-interval", "lower the first or raise the second")
	}
	f.AtLeastASecond("--node-lease-duration", s.NodeLeaseDuration)
	if s.NodePingInterval < 0 {
		f.Add(fmt.Sprintf("--node-ping-interval=%s", s.NodePingInterval), "use 0 to disable, or a duration")
	}
	f.Positive("--node-ping-timeout", s.NodePingTimeout)
	f.Positive("--startup-timeout", o.startupTimeout)
	f.When(o.requestTimeout < 0, fmt.Sprintf("--request-timeout=%s", o.requestTimeout), "use 0 for none, or a duration")
}

func (o *Options) validateServers(f *flags.Faults) {
	o.Process.Validate(f)
	o.Kubelet.Validate(f, o.stock.ListenPort)
	if o.stock.EnableMetrics {
		f.Address("--metrics-address", o.stock.MetricsAddress)
	}
	if o.stock.EnableProfiling {
		f.Address("--profiling-address", o.profilingAddress)
	}
}
