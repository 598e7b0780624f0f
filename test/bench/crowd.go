package main

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// crowdProviders is the number of providers in a crowd.
	crowdProviders = 100
	// renewal is how often the lease of each virtual kubelet is renewed: two thirds of client-go's usual renew
	// deadline.
	renewal = 5 * time.Second
)

// crowd is 100 providers, each with a VirtualNode, a Secret, a lease and a namespace, that share one provider's API
// server. They are copies of the objects that Liqo created for that provider. Liqo's controllers are stopped after
// that: they would start 100 virtual kubelets. kubelets writes to the pods and leases in place of the virtual kubelets.
type crowd struct {
	home     *sandbox.Cluster
	original string
	names    []string
}

// newCrowd creates the providers. The original provider is assigned no pods.
func (b *bench) newCrowd(ctx context.Context) (*crowd, error) {
	c := &crowd{home: b.Cluster(sandbox.Broker), original: sandbox.Provider(1)}
	if err := b.offload(ctx); err != nil {
		return nil, err
	}
	for _, component := range []string{"liqo-controller-manager", "liqo-crd-replicator"} {
		if err := b.Freeze(sandbox.Broker + "/" + component); err != nil {
			return nil, err
		}
	}
	if err := b.patchProvider(ctx, c.original, `{"spec":{"cordoned":true}}`); err != nil {
		return nil, err
	}
	for i := range crowdProviders {
		name := fmt.Sprintf("crowd-%03d", i)
		if err := c.add(ctx, name); err != nil {
			return nil, fmt.Errorf("provider %s: %w", name, err)
		}
		c.names = append(c.names, name)
	}
	return c, nil
}

func tenantOf(provider string) string { return "liqo-tenant-" + provider }

// add creates a provider of that name as a copy of the original one.
func (c *crowd) add(ctx context.Context, name string) error {
	var (
		tenant  corev1.Namespace
		foreign liqov1beta1.ForeignCluster
		vns     offloadingv1beta1.VirtualNodeList
		secret  corev1.Secret
		maps    offloadingv1beta1.NamespaceMapList
		lease   coordinationv1.Lease
	)
	in := client.InNamespace(tenantOf(c.original))
	if err := c.home.Client.List(ctx, &vns, in); err != nil {
		return err
	}
	if err := c.home.Client.List(ctx, &maps, in, client.MatchingLabels{consts.RemoteClusterID: c.original}); err != nil {
		return err
	}
	if len(vns.Items) != 1 || len(maps.Items) != 1 {
		return fmt.Errorf("%s has %d VirtualNodes and %d NamespaceMaps", c.original, len(vns.Items), len(maps.Items))
	}
	vn, mapped := &vns.Items[0], &maps.Items[0]
	for key, o := range map[client.ObjectKey]client.Object{
		{Name: tenantOf(c.original)}: &tenant,
		{Name: c.original}:           &foreign,
		{Namespace: tenantOf(c.original), Name: vn.Spec.KubeconfigSecretRef.Name}: &secret,
		{Namespace: tenantOf(c.original), Name: vn.Name}:                          &lease,
	} {
		if err := c.home.Client.Get(ctx, key, o); err != nil {
			return err
		}
	}
	foreignStatus, mapStatus := foreign.Status, mapped.Status
	foreign.Spec.ClusterID, vn.Spec.ClusterID = liqov1beta1.ClusterID(name), liqov1beta1.ClusterID(name)
	// Liqo's webhook sets it; it panics on a template that it has set itself (pkg/vkMachinery/forge, DestringifyArgument).
	vn.Spec.Template = nil
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	for _, o := range []client.Object{&tenant, &foreign, &secret, mapped, vn, &lease} {
		c.rename(o, name)
		if err := c.home.Client.Create(ctx, o); err != nil {
			return err
		}
	}
	foreign.Status, mapped.Status = foreignStatus, mapStatus
	if err := c.home.Client.Status().Update(ctx, &foreign); err != nil {
		return err
	}
	return c.home.Client.Status().Update(ctx, mapped)
}

// rename makes an object of the original provider an object of another one.
func (c *crowd) rename(o client.Object, name string) {
	labels := o.GetLabels()
	for key, value := range labels {
		if value == c.original {
			labels[key] = name
		}
	}
	to := map[string]string{c.original: name, tenantOf(c.original): tenantOf(name)}
	if renamed, is := to[o.GetName()]; is {
		o.SetName(renamed)
	}
	if renamed, is := to[o.GetNamespace()]; is {
		o.SetNamespace(renamed)
	}
	o.SetResourceVersion("")
	o.SetUID("")
	o.SetOwnerReferences(nil)
	o.SetFinalizers(nil)
	o.SetManagedFields(nil)
}

// ready waits until all providers are ready in the broker.
func (c *crowd) ready(ctx context.Context) error {
	ready := 0
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var list v1alpha1.ProviderClusterList
		if err := c.home.Client.List(ctx, &list); err != nil {
			return false, ctx.Err()
		}
		ready = 0
		for i := range list.Items {
			if vns := list.Items[i].Status.VirtualNodes; list.Items[i].Name != c.original && len(vns) == 1 && vns[0].Ready {
				ready++
			}
		}
		return ready == len(c.names), nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d providers are ready: %w", ready, len(c.names), err)
	}
	return nil
}

// renew renews the leases of all virtual kubelets until ctx ends.
func (c *crowd) renew(ctx context.Context) error {
	tick := time.NewTicker(renewal / time.Duration(len(c.names)))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		name := c.names[i%len(c.names)]
		renewed := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
		_, err := c.home.Kube.CoordinationV1().Leases(tenantOf(name)).Patch(ctx, name, types.MergePatchType, []byte(renewed),
			metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("lease of %s: %w", name, err)
		}
	}
}

// kubelets treats each pod as a virtual kubelet does, until ctx ends: it makes assigned pods Running, and removes pods
// that are being deleted. see is called with each pod first.
func (c *crowd) kubelets(ctx context.Context, see func(pod *corev1.Pod, gone bool)) error {
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error {
		started, ended := map[types.UID]bool{}, map[types.UID]bool{}
		return follow(working, c.home, oneHop, func(pod *corev1.Pod, gone bool) bool {
			see(pod, gone)
			switch {
			case gone:
				delete(started, pod.UID)
				delete(ended, pod.UID)
			case pod.DeletionTimestamp != nil && !ended[pod.UID]:
				ended[pod.UID] = true
				group.Go(func() error { return c.end(working, pod) })
			case pod.Labels[v1alpha1.VirtualNodeLabel] != "" && !started[pod.UID]:
				started[pod.UID] = true
				group.Go(func() error { return c.start(working, pod) })
			}
			return false
		})
	})
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

func (c *crowd) start(ctx context.Context, pod *corev1.Pod) error {
	now := time.Now().UTC().Format(time.RFC3339)
	status := fmt.Sprintf(`{"status":{"phase":"Running","podIP":"10.1.0.1","startTime":%q,`+
		`"containerStatuses":[{"name":"main","image":"pause","imageID":"","ready":true,"started":true,"restartCount":0,`+
		`"state":{"running":{"startedAt":%q}}}],`+
		`"conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q},`+
		`{"type":"ContainersReady","status":"True","lastTransitionTime":%q}]}}`,
		now, now, now, now)
	_, err := c.home.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, []byte(status),
		metav1.PatchOptions{}, "status")
	return client.IgnoreNotFound(err)
}

func (c *crowd) end(ctx context.Context, pod *corev1.Pod) error {
	at := metav1.NewPreconditionDeleteOptions(string(pod.UID))
	at.GracePeriodSeconds = new(int64)
	return client.IgnoreNotFound(c.home.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *at))
}
