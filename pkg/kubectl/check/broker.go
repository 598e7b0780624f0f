package check

import (
	"fmt"
	"path"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/pkg/ipam"
)

// checkBroker checks the Deployment of the broker.
func (i *installation) checkBroker() []Check {
	const name = "broker"
	if checks := i.unread(name, deployments); checks != nil {
		return checks
	}
	broker := i.broker()
	if broker == nil {
		return []Check{fail(name, "no Deployment has its labels",
			"helm install liqo-broker deploy/chart/liqo-broker-vk --namespace liqo-broker --create-namespace")}
	}
	if len(i.brokers) > 1 {
		var names []string
		for j := range i.brokers {
			names = append(names, i.brokers[j].Namespace+"/"+i.brokers[j].Name)
		}
		return []Check{fail(name, "a cluster has one broker, and there are "+strings.Join(names, ", "),
			"kubectl -n <the other's namespace> delete deployment <the other>")}
	}
	if served := i.argument("broker-node"); served != i.Node {
		return []Check{fail(name, fmt.Sprintf("it serves the node %q, and not %s", served, i.Node),
			"kubectl broker check --broker-node="+quoted(served))}
	}
	return []Check{i.checkDeployment(name, broker), i.checkVersion(broker)}
}

// checkDeployment checks that the present version of a Deployment runs.
func (i *installation) checkDeployment(name string, d *appsv1.Deployment) Check {
	wanted := ptr.Deref(d.Spec.Replicas, 1)
	state := fmt.Sprintf("%d/%d replicas of deployment %s/%s are Ready", d.Status.ReadyReplicas, wanted, d.Namespace, d.Name)
	pods := fmt.Sprintf("kubectl -n %s describe pods -l %s=%s,%s=%s", d.Namespace,
		nameLabel, d.Labels[nameLabel], componentLabel, d.Labels[componentLabel])
	switch {
	case wanted == 0:
		replicas := 2
		if name == "broker" && i.ledgerClaim() != "" {
			replicas = 1 // One pod can use the volume.
		}
		return fail(name, state, fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=%d", d.Namespace, d.Name, replicas))
	case d.Status.ReadyReplicas == 0:
		return fail(name, state, pods)
	case d.Status.ReadyReplicas < wanted:
		return warn(name, state, pods)
	case d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < wanted:
		return warn(name, state+", and its last change is not rolled out",
			fmt.Sprintf("kubectl -n %s rollout status deployment/%s", d.Namespace, d.Name))
	}
	return ok(name, state)
}

// checkVersion compares the broker with this program, whose decisions explain and drain --dry-run show.
func (i *installation) checkVersion(broker *appsv1.Deployment) Check {
	const name = "version"
	tag := parseImage(i.image()).tag
	theirs, ours := versionOf(tag), versionOf(i.Version)
	switch {
	case theirs == nil || ours == nil:
		return ok(name, fmt.Sprintf("the image of the broker is %s, this program is %s", i.image(), i.Version))
	case theirs.EqualTo(ours):
		return ok(name, "the broker and this program are "+tag)
	case theirs.LessThan(ours):
		return warn(name, fmt.Sprintf("the broker is %s, older than this program, %s", tag, i.Version),
			i.upgradeBroker(broker))
	}
	return warn(name, fmt.Sprintf("this program is %s, older than the broker, %s", i.Version, tag),
		"kubectl krew upgrade liqo-broker")
}

// upgradeBroker returns the command that gives the broker the version of this program.
func (i *installation) upgradeBroker(broker *appsv1.Deployment) string {
	if isRelease(broker) {
		return i.apply("") + " --set image.digest=,image.tag=" + i.Version
	}
	return fmt.Sprintf("kubectl -n %s set image deployment/%s broker=%s:%s", broker.Namespace, broker.Name,
		parseImage(i.image()).repository, i.Version)
}

// checkNode checks the broker's Node and its lease.
func (i *installation) checkNode() []Check {
	const name = "node"
	if checks := i.unread(name, nodes); checks != nil {
		return checks
	}
	if i.node == nil {
		return []Check{fail(name, i.Node+" does not exist", i.logs())}
	}
	for _, c := range i.node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		switch {
		case c.Status != corev1.ConditionTrue:
			return []Check{fail(name, fmt.Sprintf("%s is not Ready: %s", i.Node, orElse(c.Message, c.Reason)), i.logs())}
		case i.node.Spec.Unschedulable:
			return []Check{warn(name, i.Node+" gets no new pods: it is cordoned", "kubectl uncordon "+i.Node)}
		}
		return []Check{ok(name, i.Node+" is Ready")}
	}
	return []Check{fail(name, i.Node+" has no condition Ready", i.logs())}
}

// logs is the command that shows the log of the broker.
func (i *installation) logs() string {
	broker := i.broker()
	if broker == nil {
		return "kubectl get deployments -A -l " + nameLabel + "=liqo-broker-vk"
	}
	return fmt.Sprintf("kubectl -n %s logs deployment/%s", broker.Namespace, broker.Name)
}

func orElse(text, otherwise string) string {
	if strings.TrimSpace(text) == "" {
		return otherwise
	}
	return text
}

// servesIPAM reports whether the broker has a remote IPAM.
func (i *installation) servesIPAM() bool {
	return i.enabled("with-aggregator", false) && i.argument("ipam-address") != "0"
}

// checkRemoteIPAM checks that consumers reach the remote IPAM.
func (i *installation) checkRemoteIPAM() []Check {
	const name = "remote-ipam"
	broker := i.broker()
	if broker == nil || !i.servesIPAM() {
		return nil
	}
	if checks := i.unread(name, services); checks != nil {
		return checks
	}
	if i.service == nil {
		return []Check{fail(name, fmt.Sprintf("the Service %s/%s does not exist, so virtual kubelets of consumers do not reach the broker",
			broker.Namespace, ipam.ServiceName), i.apply("network-manager.yaml"))}
	}
	switch i.service.Spec.Type {
	case corev1.ServiceTypeLoadBalancer:
		for _, at := range i.service.Status.LoadBalancer.Ingress {
			if address := orElse(at.IP, at.Hostname); address != "" {
				if strings.Contains(address, ":") {
					address = "[" + address + "]"
				}
				return []Check{ok(name, "for the virtual kubelets of consumers: --remote-ipam=server="+address)}
			}
		}
		return []Check{warn(name, "the Service has no address of a load balancer yet",
			fmt.Sprintf("kubectl -n %s describe service %s", broker.Namespace, ipam.ServiceName))}
	case corev1.ServiceTypeNodePort:
		return []Check{ok(name, "for the virtual kubelets of consumers: --remote-ipam=server=<address of a node>:"+i.nodePort())}
	}
	kind := orElse(string(i.service.Spec.Type), string(corev1.ServiceTypeClusterIP))
	return []Check{warn(name, fmt.Sprintf("the Service has the type %s, which consumers do not reach", kind),
		fmt.Sprintf(`kubectl -n %s patch service %s -p '{"spec": {"type": "LoadBalancer"}}'`, broker.Namespace, ipam.ServiceName))}
}

func (i *installation) nodePort() string {
	if len(i.service.Spec.Ports) == 0 {
		return "<port>"
	}
	return fmt.Sprint(i.service.Spec.Ports[0].NodePort)
}

// checkCatalog checks the Deployments of the catalog, or that the broker's pods have it.
func (i *installation) checkCatalog() []Check {
	const name = "catalog"
	broker := i.broker()
	if broker == nil || len(i.catalogs) == 0 && !i.enabled("with-catalog", false) {
		return nil
	}
	if len(i.catalogs) > 0 {
		d := &i.catalogs[0]
		if c := i.checkDeployment(name, d); c.State != OK {
			c.State = Warn // Pods are placed without it.
			return []Check{c}
		}
		image := imageOf(&d.Spec.Template.Spec, "catalog")
		if _, difference := differs(i.image(), image); difference != "" {
			return []Check{warn(name, difference, fmt.Sprintf("kubectl -n %s set image deployment/%s %s=%s",
				d.Namespace, d.Name, containerOf(&d.Spec.Template.Spec, "catalog").Name, i.image()))}
		}
		return []Check{ok(name, fmt.Sprintf("deployment %s/%s is Ready", d.Namespace, d.Name))}
	}
	for _, c := range broker.Spec.Template.Spec.Containers {
		if c.Name == "catalog" {
			return []Check{ok(name, "it runs in the pods of the broker")}
		}
	}
	return []Check{warn(name, "the broker has the argument --with-catalog, and no catalog runs", i.apply("catalog.yaml"))}
}

// ledgerVolume returns the volume of the broker's pods with the ledger; nil if it is on none.
func (i *installation) ledgerVolume() *corev1.Volume {
	file, broker := i.argument("ledger"), i.broker()
	if file == "" || broker == nil {
		return nil
	}
	spec := &broker.Spec.Template.Spec
	var longest *corev1.VolumeMount
	for j := range containerOf(spec, "broker").VolumeMounts {
		mount := &containerOf(spec, "broker").VolumeMounts[j]
		within := strings.TrimSuffix(path.Clean(mount.MountPath), "/") + "/"
		if strings.HasPrefix(path.Clean(file), within) && (longest == nil || len(mount.MountPath) > len(longest.MountPath)) {
			longest = mount
		}
	}
	if longest == nil {
		return nil
	}
	for j := range spec.Volumes {
		if spec.Volumes[j].Name == longest.Name {
			return &spec.Volumes[j]
		}
	}
	return nil
}

// ledgerClaim returns the name of the ledger's PersistentVolumeClaim; "" if there is none.
func (i *installation) ledgerClaim() string {
	volume := i.ledgerVolume()
	if volume == nil || volume.PersistentVolumeClaim == nil {
		return ""
	}
	return volume.PersistentVolumeClaim.ClaimName
}

// checkLedger checks that the ledger outlives the broker's pods.
func (i *installation) checkLedger() []Check {
	const name = "ledger"
	file, broker := i.argument("ledger"), i.broker()
	if file == "" || broker == nil {
		return nil
	}
	claim, volume := i.ledgerClaim(), i.ledgerVolume()
	switch {
	case claim != "":
	case volume != nil && volume.EmptyDir == nil:
		return []Check{ok(name, fmt.Sprintf("%s is on the volume %s", file, volume.Name))}
	default:
		return []Check{warn(name, file+" is not on a persistent volume: it is lost with the pod", i.enableLedger())}
	}
	if checks := i.unread(name, claims); checks != nil {
		return checks
	}
	if i.claim == nil {
		return []Check{fail(name, fmt.Sprintf("the claim %s does not exist, so the broker does not start", claim), i.enableLedger())}
	}
	if i.claim.Status.Phase != corev1.ClaimBound {
		return []Check{fail(name, fmt.Sprintf("the claim %s is %s, so the broker does not start", claim, i.claim.Status.Phase),
			fmt.Sprintf("kubectl -n %s describe persistentvolumeclaim %s", broker.Namespace, claim))}
	}
	return []Check{ok(name, fmt.Sprintf("%s is on the claim %s", file, claim))}
}

func (i *installation) enableLedger() string {
	return fmt.Sprintf("helm upgrade liqo-broker deploy/chart/liqo-broker-vk --namespace %s --reset-then-reuse-values "+
		"--set broker.ledger.enabled=true,broker.replicas=1", i.broker().Namespace)
}

// clockLimit is the difference of clocks that is reported. The leases of the broker tolerate more; certificates that were
// just issued, and the ages that are shown, do not.
const clockLimit = 5 * time.Second

// checkClocks compares the local clock, and the clock of the broker, with the clock of the API server.
func (i *installation) checkClocks() []Check {
	const name = "clocks"
	ahead, known := i.ahead()
	if known && ahead.Abs() > clockLimit {
		direction := "behind"
		if ahead < 0 {
			direction = "ahead of"
		}
		return []Check{warn(name, fmt.Sprintf("the clock of this machine is %s %s the API server's: ages and certificates are judged by it",
			ahead.Abs().Round(time.Second), direction), "timedatectl set-ntp true")}
	}
	if checks := i.unread(name, leases); checks != nil {
		return checks
	}
	if i.lease == nil || i.lease.Spec.RenewTime == nil {
		if !known {
			return nil
		}
		return []Check{ok(name, "the clock of this machine agrees with the API server's")}
	}
	age := i.now.Sub(i.lease.Spec.RenewTime.Time).Round(time.Second)
	duration := time.Duration(ptr.Deref(i.lease.Spec.LeaseDurationSeconds, 40)) * time.Second
	switch {
	case age < -clockLimit:
		return []Check{warn(name, fmt.Sprintf("the lease of the node was renewed %s from now: the clock of the broker is ahead of %s",
			-age, i.reference(known)), i.whereBroker())}
	case age > duration+clockLimit:
		return []Check{warn(name, fmt.Sprintf("the lease of the node was renewed %s ago: the broker is down, or its clock is behind %s",
			age, i.reference(known)), i.whereBroker())}
	}
	return []Check{ok(name, "the clock of the broker agrees with "+i.reference(known))}
}

func (i *installation) reference(known bool) string {
	if known {
		return "the API server's"
	}
	return "this machine's"
}

// whereBroker is the command that shows on which machines the broker runs.
func (i *installation) whereBroker() string {
	namespace := "liqo-broker"
	if broker := i.broker(); broker != nil {
		namespace = broker.Namespace
	}
	return fmt.Sprintf("kubectl -n %s get pods -l %s=liqo-broker-vk,%s=broker -o wide", namespace, nameLabel, componentLabel)
}
