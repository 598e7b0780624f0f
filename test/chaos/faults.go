package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// kind is a kind of fault.
type kind struct {
	// on returns the processes or the cluster that can have only one fault at a time.
	on func(provider string) []string
	// share is how often it is drawn, longest its longest duration.
	share   int
	longest time.Duration
	// begin starts the fault at a provider, and returns the function that ends it.
	begin func(ctx context.Context, s *sandbox.Sandbox, provider string) (end func(context.Context) error, err error)
}

type undo = func(context.Context) error

// frozen freezes processes and resumes them later. named resolves the components for the provider.
func frozen(components ...string) func(context.Context, *sandbox.Sandbox, string) (undo, error) {
	return func(_ context.Context, s *sandbox.Sandbox, provider string) (undo, error) {
		each := func(do func(string) error) (err error) {
			for _, component := range components {
				err = errors.Join(err, do(named(component, provider)))
			}
			return err
		}
		return func(context.Context) error { return each(s.Resume) }, each(s.Freeze)
	}
}

// killed kills processes and restarts them later.
func killed(components ...string) func(context.Context, *sandbox.Sandbox, string) (undo, error) {
	return func(_ context.Context, s *sandbox.Sandbox, provider string) (undo, error) {
		each := func(do func(string) error) (err error) {
			for _, component := range components {
				err = errors.Join(err, do(named(component, provider)))
			}
			return err
		}
		return func(ctx context.Context) error {
			return each(func(name string) error { return s.Restart(ctx, name) })
		}, each(s.Kill)
	}
}

// withoutEtcd kills the etcd of a cluster and its kube-controller-manager, and restarts both. With its default flags,
// kube-controller-manager exits ten seconds after etcd, because it cannot renew its lease, and the kubelet restarts it
// until the API server answers: then it begins the grace periods of Nodes anew (nodeHealthMap in
// pkg/controller/nodelifecycle of Kubernetes v1.35). A kube-controller-manager that stays up would call each Node lost
// whose kubelet does not renew its lease before the first check.
func withoutEtcd(home bool) func(context.Context, *sandbox.Sandbox, string) (undo, error) {
	return func(ctx context.Context, s *sandbox.Sandbox, cluster string) (undo, error) {
		if home {
			cluster = sandbox.Broker
		}
		etcd, err := killed("/etcd")(ctx, s, cluster)
		manager, managerErr := killed("/kube-controller-manager")(ctx, s, cluster)
		return func(ctx context.Context) error {
			if err := etcd(ctx); err != nil {
				return err
			}
			answers := func(ctx context.Context) error {
				return s.Cluster(cluster).Client.List(ctx, &corev1.NamespaceList{}, client.Limit(1))
			}
			return errors.Join(retried(ctx, answers), manager(ctx))
		}, errors.Join(err, managerErr)
	}
}

func named(component, provider string) string {
	if component[0] == '/' {
		return provider + component
	}
	if component == "vk" {
		return sandbox.Broker + "/vk-" + provider
	}
	return component
}

// leader applies a fault to the leader of the broker, and over ends it.
func leader(
	do func(*sandbox.Sandbox, string) error, over func(context.Context, *sandbox.Sandbox, string) error,
) func(context.Context, *sandbox.Sandbox, string) (undo, error) {
	return func(ctx context.Context, s *sandbox.Sandbox, _ string) (undo, error) {
		name := ""
		err := retried(ctx, func(ctx context.Context) (err error) {
			name, err = s.BrokerLeader(ctx)
			return err
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return over(ctx, s, name) }, do(s, name)
	}
}

// follower freezes the replica of the broker that does not lead.
func follower(ctx context.Context, s *sandbox.Sandbox, _ string) (undo, error) {
	name := ""
	err := retried(ctx, func(ctx context.Context) error {
		leader, err := s.BrokerLeader(ctx)
		if err != nil {
			return err
		}
		replicas, err := s.Replicas(sandbox.Broker + "/" + sandbox.BrokerComponent)
		if i := slices.IndexFunc(replicas, func(replica string) bool { return replica != leader }); i >= 0 {
			name = replicas[i]
		}
		return err
	})
	if err != nil || name == "" {
		return nil, errors.Join(err, errors.New("no replica of the broker follows its leader"))
	}
	return func(context.Context) error { return s.Resume(name) }, s.Freeze(name)
}

// specified changes the ProviderCluster of a provider, and reverts the change later.
func specified(change func(spec *v1alpha1.ProviderClusterSpec, on bool)) func(context.Context, *sandbox.Sandbox, string) (undo, error) {
	return func(ctx context.Context, s *sandbox.Sandbox, provider string) (undo, error) {
		write := func(ctx context.Context, on bool) error {
			return retried(ctx, func(ctx context.Context) error {
				c := s.Cluster(sandbox.Broker).Client
				var pc v1alpha1.ProviderCluster
				if err := c.Get(ctx, client.ObjectKey{Name: provider}, &pc); err != nil {
					return err
				}
				change(&pc.Spec, on)
				return c.Update(ctx, &pc)
			})
		}
		return func(ctx context.Context) error { return write(ctx, false) }, write(ctx, true)
	}
}

// parted deletes the slice of a provider with its VirtualNode, and creates it again later.
func parted(ctx context.Context, s *sandbox.Sandbox, provider string) (undo, error) {
	home := s.Cluster(sandbox.Broker)
	meta := metav1.ObjectMeta{Namespace: "liqo-tenant-" + provider, Name: provider}
	slice, virtualNode := &authv1beta1.ResourceSlice{ObjectMeta: meta}, &offloadingv1beta1.VirtualNode{ObjectMeta: meta}
	var asked sandbox.Slice
	again := func(ctx context.Context) error {
		err := retried(ctx, func(ctx context.Context) error {
			for _, o := range []client.Object{slice, virtualNode} {
				if err := home.Client.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
					return fmt.Errorf("%T %s is still there (%w)", o, o.GetName(), err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		return errors.Join(home.CreateSlice(ctx, provider, provider, asked, nil), home.WaitVirtualKubelet(ctx, provider, provider))
	}
	return again, retried(ctx, func(ctx context.Context) error {
		if asked.CPU == "" {
			if err := home.Client.Get(ctx, client.ObjectKeyFromObject(slice), slice); err != nil {
				return err
			}
			r := slice.Spec.Resources
			asked = sandbox.Slice{CPU: r.Cpu().String(), Memory: r.Memory().String(), Pods: r.Pods().String()}
		}
		return errors.Join(client.IgnoreNotFound(home.Client.Delete(ctx, slice)),
			client.IgnoreNotFound(home.Client.Delete(ctx, virtualNode)))
	})
}

// deleted deletes all ProviderClusters, as after the restore of a backup without them. The broker recreates them.
func deleted(ctx context.Context, s *sandbox.Sandbox, _ string) (undo, error) {
	return func(context.Context) error { return nil }, retried(ctx, func(ctx context.Context) error {
		return s.Cluster(sandbox.Broker).Client.DeleteAllOf(ctx, &v1alpha1.ProviderCluster{})
	})
}

// rejected has a provider reject the identity of the broker.
func rejected(ctx context.Context, s *sandbox.Sandbox, provider string) (undo, error) {
	var accept undo
	err := retried(ctx, func(ctx context.Context) error {
		restore, err := s.Reject(ctx, provider)
		if accept == nil { // A later try may find the certificate of an earlier one, whose answer was lost.
			accept = restore
		}
		return err
	})
	if accept == nil {
		return nil, err
	}
	return func(ctx context.Context) error { return retried(ctx, accept) }, err
}

// nodeDeleted deletes the Node of the broker, which the broker recreates.
func nodeDeleted(ctx context.Context, s *sandbox.Sandbox, _ string) (undo, error) {
	return func(context.Context) error { return nil }, retried(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(s.Cluster(sandbox.Broker).Client.Delete(ctx, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: s.BrokerNode()},
		}))
	})
}

// nodeDrained evicts the pods of a provider, as kubectl drain does.
func nodeDrained(ctx context.Context, s *sandbox.Sandbox, provider string) (undo, error) {
	there := s.Cluster(provider)
	return func(context.Context) error { return nil }, retried(ctx, func(ctx context.Context) error {
		var list corev1.PodList
		forwarded := client.MatchingLabels{consts.ManagedByLabelKey: consts.ManagedByShadowPodValue}
		if err := there.Client.List(ctx, &list, forwarded); err != nil {
			return err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			evicts := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
			if err := there.Kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, evicts); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		return nil
	})
}

// retried retries until do succeeds or ctx ends: the API server may be down.
func retried(ctx context.Context, do func(context.Context) error) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := do(bounded)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, 300*time.Millisecond)
		if ctx.Err() != nil {
			return err
		}
	}
}

// kinds returns all kinds of faults, by name. A kind that test/histories also has is the same fault there.
func kinds() map[string]kind {
	plane := func(provider string) []string { return []string{provider} }
	home := func(string) []string { return []string{sandbox.Broker} }
	brokers := func(string) []string { return []string{"leader"} }
	consumer := func(string) []string { return []string{sandbox.Consumer(1)} }
	kubelet := func(provider string) []string { return []string{"vk-" + provider} }
	spec := func(provider string) []string { return []string{"spec of " + provider} }
	both := func(provider string) []string { return slices.Concat(plane(provider), kubelet(provider)) }
	const (
		broker = sandbox.Broker + "/" + sandbox.BrokerComponent
		// atConsumer is the cluster of a consumer, and its virtual kubelet.
		atConsumer = "consumer1"
		pc         = 40 * time.Second
	)
	return map[string]kind{
		"provider hangs":                    {plane, 8, 45 * time.Second, frozen("/kube-apiserver")},
		"provider refuses":                  {plane, 6, 45 * time.Second, killed("/kube-apiserver")},
		"provider's etcd hangs":             {plane, 4, 45 * time.Second, frozen("/etcd")},
		"provider's etcd is killed":         {plane, 3, 30 * time.Second, withoutEtcd(false)},
		"provider's controllers stop":       {plane, 4, 30 * time.Second, frozen("/kube-controller-manager", "/liqo-controller-manager")},
		"provider's controllers are killed": {plane, 3, 30 * time.Second, killed("/kube-controller-manager", "/liqo-controller-manager")},
		"provider's webhook hangs":          {plane, 6, 25 * time.Second, frozen("/liqo-webhook")},
		"home hangs":                        {home, 3, 25 * time.Second, frozen(sandbox.Broker + "/kube-apiserver")},
		"home refuses":                      {home, 3, 20 * time.Second, killed(sandbox.Broker + "/kube-apiserver")},
		"home's etcd is killed":             {home, 2, 15 * time.Second, withoutEtcd(true)},
		"home's etcd hangs":                 {home, 2, 20 * time.Second, frozen(sandbox.Broker + "/etcd")},
		"home's controllers stop": {
			home, 3, 30 * time.Second, frozen(sandbox.Broker+"/kube-controller-manager", sandbox.Broker+"/liqo-controller-manager"),
		},
		"leader is killed": {
			brokers, 6, 20 * time.Second,
			leader((*sandbox.Sandbox).Kill, func(ctx context.Context, s *sandbox.Sandbox, name string) error {
				return s.Restart(ctx, name)
			}),
		},
		"leader stops": {
			brokers, 8, 40 * time.Second,
			leader((*sandbox.Sandbox).Freeze, func(_ context.Context, s *sandbox.Sandbox, name string) error {
				return s.Resume(name)
			}),
		},
		"follower stops":                       {brokers, 3, 40 * time.Second, follower},
		"consumer hangs":                       {consumer, 3, 40 * time.Second, frozen(atConsumer + "/kube-apiserver")},
		"consumer refuses":                     {consumer, 3, 30 * time.Second, killed(atConsumer + "/kube-apiserver")},
		"consumer's virtual kubelet stops":     {consumer, 3, 40 * time.Second, frozen(atConsumer + "/vk-broker")},
		"consumer's virtual kubelet is killed": {consumer, 3, 30 * time.Second, killed(atConsumer + "/vk-broker")},
		"all brokers are killed":               {brokers, 2, 25 * time.Second, killed(broker)},
		awayForLong:                            {brokers, 0, time.Minute, killed(broker)},
		"virtual kubelet is killed":            {kubelet, 6, 30 * time.Second, killed("vk")},
		"virtual kubelet stops":                {kubelet, 6, 40 * time.Second, frozen("vk")},
		"drain":                                {spec, 8, pc, specified(func(s *v1alpha1.ProviderClusterSpec, on bool) { s.Drain = on })},
		"cordon": {
			spec, 3, pc, specified(func(s *v1alpha1.ProviderClusterSpec, on bool) { s.Cordoned = on }),
		},
		"disable": {
			spec, 3, pc, specified(func(s *v1alpha1.ProviderClusterSpec, on bool) { s.Enabled = ptr.To(!on) }),
		},
		"ProviderClusters are deleted":  {home, 2, time.Second, deleted},
		"part":                          {both, 4, 30 * time.Second, parted},
		"provider rejects the identity": {both, 4, 45 * time.Second, rejected},
		"provider's node is drained":    {plane, 4, time.Second, nodeDrained},
		"Node is deleted":               {home, 3, time.Second, nodeDeleted},
	}
}

// awayForLong lasts longer than Kubernetes would wait to evict the pods, if the virtual kubelets did not keep the Node
// alive. It is never drawn at random.
const awayForLong = "all brokers are away for long"

// Kinds returns the names of all kinds of faults, sorted.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds())) }

// Tolerance returns the judge's tolerances beyond the brokers' times, for a lease of 12 s.
func Tolerance() judge.Times {
	return judge.Times{
		// A lease, during which the leader may hang, and the start of the next leader.
		Noticed: 30 * time.Second, Flap: 8 * time.Second,
		// Liqo's controller may recreate a pod from a cache that still has its ShadowPod (CreateOrUpdate in
		// shadowpod-ctrl/shadowpod_controller.go): 0.2 to 0.4 s were seen. Events of two API servers arrive at
		// different times.
		Overlap: 2 * time.Second, Skew: time.Second,
	}
}

// kindNames lists each kind as often as its share, sorted.
func kindNames() (names []string) {
	all := kinds()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for range all[name].share {
			names = append(names, name)
		}
	}
	return names
}
