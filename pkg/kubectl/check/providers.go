package check

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// checkProviders checks the conditions of the ProviderClusters.
func (i *installation) checkProviders() []Check {
	if i.unserved[providers] {
		return nil // The CRD is missing.
	}
	if checks := i.unread("providers", providers); checks != nil {
		return checks
	}
	if len(i.providers) == 0 {
		return []Check{warn("providers", "no cluster shares resources with this one",
			"liqoctl peer --remote-kubeconfig <the provider's> --cpu 16 --memory 64Gi --pods 200")}
	}
	checks := make([]Check, 0, len(i.providers))
	for j := range i.providers {
		checks = append(checks, i.checkProvider(&i.providers[j]))
	}
	return checks
}

func (i *installation) checkProvider(pc *v1alpha1.ProviderCluster) Check {
	name := "provider/" + pc.Name
	ready := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ProviderReady)
	switch {
	case ready == nil || ready.Status == metav1.ConditionUnknown:
		return warn(name, "the broker has not probed it yet", i.logs())
	case pc.Status.ObservedGeneration < pc.Generation:
		return warn(name, "the broker has not read its spec yet", i.logs())
	case ready.Status == metav1.ConditionFalse && !pc.Spec.IsEnabled():
		return warn(name, "it is disabled, and not Ready: "+orElse(ready.Message, ready.Reason), i.remedyFor(pc))
	case ready.Status == metav1.ConditionFalse:
		return fail(name, "it is not Ready: "+orElse(ready.Message, ready.Reason), i.remedyFor(pc))
	}
	return i.checkReady(name, pc)
}

// checkReady checks a provider that is Ready for reasons why it gets no pods, or fewer.
func (i *installation) checkReady(name string, pc *v1alpha1.ProviderCluster) Check {
	for _, c := range []struct{ condition, remedy string }{
		{v1alpha1.ProviderClean, "kubectl get pods -A -l " + v1alpha1.ProviderLabel + "=" + pc.Name},
		{v1alpha1.ProviderStartsPods, "kubectl --kubeconfig <the provider's> get events -A"},
		{v1alpha1.ProviderSlicesGranted, "kubectl get resourceslices.authentication.liqo.io -A"},
	} {
		if found := meta.FindStatusCondition(pc.Status.Conditions, c.condition); found != nil && found.Status == metav1.ConditionFalse {
			return warn(name, c.condition+" is False: "+orElse(found.Message, found.Reason), c.remedy)
		}
	}
	for j := range pc.Status.VirtualNodes {
		if vn := &pc.Status.VirtualNodes[j]; vn.Reason != "" && !paused(pc) {
			return warn(name, "no pods are assigned to its slice "+vn.Name+": "+vn.Reason, i.describe(vn.Name))
		}
	}
	switch {
	case !pc.Spec.IsEnabled():
		return ok(name, "it is Ready, and disabled")
	case pc.Spec.Drain:
		return ok(name, "it is Ready, and drained")
	case pc.Spec.Cordoned:
		return ok(name, "it is Ready, and cordoned")
	}
	return ok(name, "it is Ready")
}

// paused reports whether an administrator keeps new pods away.
func paused(pc *v1alpha1.ProviderCluster) bool {
	return !pc.Spec.IsEnabled() || pc.Spec.Drain || pc.Spec.Cordoned
}

// remedyFor returns the remedy of docs/operating.md for the first condition that keeps a provider from being Ready.
func (i *installation) remedyFor(pc *v1alpha1.ProviderCluster) string {
	const peer = "liqoctl peer --remote-kubeconfig <the provider's>"
	for _, kind := range []string{
		v1alpha1.ProviderReady, v1alpha1.ProviderReachable, v1alpha1.ProviderKubeletReady, v1alpha1.ProviderNetworkReady,
	} {
		c := meta.FindStatusCondition(pc.Status.Conditions, kind)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		switch c.Reason {
		case v1alpha1.ReasonNotPeered:
			if strings.Contains(c.Message, ": ") { // It denies them.
				return "kubectl get resourceslices.authentication.liqo.io -A"
			}
			return "kubectl delete providercluster " + pc.Name
		case v1alpha1.ReasonRejects:
			return "liqoctl authenticate --remote-kubeconfig <the provider's>"
		case v1alpha1.ReasonNoKubeconfig:
			if strings.Contains(c.Message, "proxyURL") {
				return i.editBroker("--provider-proxy-url")
			}
			return peer
		case v1alpha1.ReasonNoAnswer, v1alpha1.ReasonNotAnsweredYet, v1alpha1.ReasonReadyzFails:
			return "kubectl --kubeconfig <the provider's> get --raw '/readyz?verbose'"
		case v1alpha1.ReasonServesAnotherNode, v1alpha1.ReasonLeaseLost:
			return i.remedyForKubelet(pc, c.Reason)
		case v1alpha1.ReasonNotConnected:
			return "liqoctl info peer " + pc.Name
		}
	}
	return "kubectl describe providercluster " + pc.Name
}

// remedyForKubelet returns the remedy for the virtual kubelet of the first slice that has no pods because of it.
func (i *installation) remedyForKubelet(pc *v1alpha1.ProviderCluster, reason string) string {
	for _, vn := range i.served() {
		if string(vn.Spec.ClusterID) != pc.Name {
			continue
		}
		if reason == v1alpha1.ReasonServesAnotherNode {
			return fmt.Sprintf("kubectl -n %s delete virtualnode %s", vn.Namespace, vn.Name)
		}
		return fmt.Sprintf("kubectl -n %s describe pods", vn.Namespace)
	}
	return "kubectl get virtualnodes -A"
}

func (i *installation) describe(virtualNode string) string {
	for _, vn := range i.served() {
		if vn.Name == virtualNode {
			return fmt.Sprintf("kubectl -n %s describe virtualnode %s", vn.Namespace, vn.Name)
		}
	}
	return "kubectl get virtualnodes -A"
}

// editBroker is the command that adds an argument to the broker.
func (i *installation) editBroker(argument string) string {
	broker := i.broker()
	if broker == nil {
		return "add " + argument + " to the arguments of the broker"
	}
	return fmt.Sprintf("kubectl -n %s edit deployment %s   # add %s", broker.Namespace, broker.Name, argument)
}

// renewal is the part of its lifetime that a certificate has left when it should have been renewed: Liqo renews it after
// two thirds, and looks again within a tenth of that.
const renewal = 0.25

// checkCredentials checks the client certificates that this cluster has for others. Other credentials, such as the ones of
// EKS, have no end here.
func (i *installation) checkCredentials() []Check {
	if i.unserved[identities] {
		return nil // Liqo is missing.
	}
	if checks := i.unread("credentials", identities); checks != nil {
		return checks
	}
	var checks []Check
	for j := range i.identities {
		if len(i.identities[j].Spec.AuthParams.SignedCRT) > 0 {
			checks = append(checks, i.checkCertificate(&i.identities[j]))
		}
	}
	return checks
}

func (i *installation) checkCertificate(identity *authv1beta1.Identity) Check {
	name := "credentials/" + identity.Namespace + "/" + identity.Name
	to := string(identity.Spec.ClusterID)
	const renew = "liqoctl authenticate --remote-kubeconfig <the provider's>"
	block, _ := pem.Decode(identity.Spec.AuthParams.SignedCRT)
	if block == nil {
		return fail(name, "the client certificate for "+to+" is not in PEM", renew)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fail(name, "the client certificate for "+to+" cannot be read: "+err.Error(), renew)
	}
	left := certificate.NotAfter.Sub(i.now)
	lifetime := certificate.NotAfter.Sub(certificate.NotBefore)
	end := certificate.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case i.now.Before(certificate.NotBefore.Add(-clockLimit)):
		return warn(name, fmt.Sprintf("the client certificate for %s is valid from %s: the clocks of the clusters differ", to,
			certificate.NotBefore.UTC().Format(time.RFC3339)), "kubectl --kubeconfig <the provider's> get --raw /readyz -v=8")
	case left <= 0:
		return fail(name, fmt.Sprintf("the client certificate for %s expired at %s", to, end), renew)
	case left.Seconds() < renewal*lifetime.Seconds():
		return warn(name, fmt.Sprintf("the client certificate for %s expires at %s, and Liqo should have renewed it", to, end),
			"kubectl --kubeconfig <the provider's> -n liqo logs deployment/liqo-controller-manager")
	}
	return ok(name, fmt.Sprintf("the client certificate for %s is valid until %s", to, end))
}
