package chaos

import (
	"context"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// relistAfter is the delay before a failed list is repeated.
const relistAfter = 200 * time.Millisecond

// recorder records the changes at the API servers of a sandbox.
type recorder struct {
	*Federation
	// namespace is the namespace of the pods, both in the broker's and in the consumer's cluster.
	namespace string
	at        []*judge.Provider
	watching  sync.WaitGroup

	mu sync.Mutex
	// clusters holds the changes of each cluster, by name. gaps counts how often a watch could not be resumed.
	clusters     map[string]*judge.Cluster
	events, gaps int
	faults       []judge.Fault
	// slowest is the longest response time of the broker's API server outside its own faults.
	slowest time.Duration
}

func newRecorder(f *Federation, namespace string, at []*judge.Provider) *recorder {
	r := &recorder{Federation: f, namespace: namespace, at: at, clusters: map[string]*judge.Cluster{}}
	for _, c := range f.Clusters {
		r.clusters[c.Name] = &judge.Cluster{}
	}
	return r
}

// start records until ctx ends. It returns once all watches have started.
func (r *recorder) start(ctx context.Context) error {
	home := r.Cluster(sandbox.Broker)
	of := r.clusters[sandbox.Broker]
	consumer := r.Cluster(sandbox.Consumer(1))
	namespaces := []string{r.namespace, consumer.RemoteNamespace(r.namespace)}
	streams := []stream{
		{consumer, &corev1.PodList{}, r.namespace, &r.clusters[consumer.Name].Pods},
		{home, &coordinationv1.LeaseList{}, "", &of.Leases},
		{home, &corev1.NodeList{}, "", &of.Nodes},
		{home, &v1alpha1.ProviderClusterList{}, "", &of.ProviderClusters},
	}
	for _, namespace := range namespaces {
		streams = append(streams, stream{home, &corev1.PodList{}, namespace, &of.Pods})
		for _, p := range r.at {
			there, of, namespace := r.Cluster(p.ID), r.clusters[p.ID], home.RemoteNamespace(namespace)
			streams = append(streams, stream{there, &corev1.PodList{}, namespace, &of.Pods},
				stream{there, &offloadingv1beta1.ShadowPodList{}, namespace, &of.ShadowPods})
		}
	}
	for i := range streams {
		first := make(chan error, 1)
		r.watching.Go(func() { r.follow(ctx, &streams[i], first) })
		if err := <-first; err != nil {
			return err
		}
	}
	r.watching.Go(func() { r.timed(ctx) })
	return nil
}

// timed measures the response time of the broker's API server while it has no fault, until ctx ends.
func (r *recorder) timed(ctx context.Context) {
	home := r.Cluster(sandbox.Broker)
	for ctx.Err() == nil {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		err := home.Client.Get(bounded, client.ObjectKey{Name: metav1.NamespaceSystem}, &corev1.Namespace{})
		cancel()
		if took := time.Since(began); err == nil {
			r.note(began, took)
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func (r *recorder) note(began time.Time, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.faults {
		f := &r.faults[i]
		if slices.Contains(kinds()[f.Kind].on(""), sandbox.Broker) && began.Before(f.Until.Add(tooSlow)) && began.Add(took).After(f.From) {
			return // After a fault the API server works off its backlog.
		}
	}
	r.slowest = max(r.slowest, took)
}

// stream is one kind of objects of one cluster in a namespace; "" means all namespaces.
type stream struct {
	cluster   *sandbox.Cluster
	list      client.ObjectList
	namespace string
	into      *[]judge.Change
}

// follow records a stream until ctx ends. It resumes a watch that ended, also after a restart of the API server. If it
// cannot resume, it lists again and counts a gap.
func (r *recorder) follow(ctx context.Context, s *stream, first chan<- error) {
	watcher, err := client.NewWithWatch(s.cluster.Config,
		client.Options{Scheme: s.cluster.Client.Scheme(), Mapper: s.cluster.Client.RESTMapper()})
	if err != nil {
		first <- err
		return
	}
	known := map[types.NamespacedName]client.Object{}
	for lists := 0; ctx.Err() == nil; {
		list, ok := s.list.DeepCopyObject().(client.ObjectList)
		if !ok {
			return
		}
		if err := watcher.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			if lists == 0 {
				first <- err
				return
			}
			pause(ctx, relistAfter)
			continue
		}
		r.relist(s, known, list, lists > 0)
		if lists++; lists == 1 {
			first <- nil
		}
		r.watch(ctx, s, watcher, known, list)
	}
}

// relist records a list: the first one, or one after a gap.
func (r *recorder) relist(s *stream, known map[types.NamespacedName]client.Object, list client.ObjectList, gap bool) {
	there := map[types.NamespacedName]bool{}
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		object := o.(client.Object) // All items are.
		there[client.ObjectKeyFromObject(object)] = true
		r.observe(s, known, object, false)
		return nil
	})
	for key, object := range known {
		if !there[key] {
			r.observe(s, known, object, true)
		}
	}
	if gap {
		r.mu.Lock()
		r.gaps++
		r.mu.Unlock()
	}
}

// watch records until ctx ends or the watch cannot be resumed.
func (r *recorder) watch(
	ctx context.Context, s *stream, watcher client.WithWatch, known map[types.NamespacedName]client.Object, list client.ObjectList,
) {
	stream, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return watcher.Watch(ctx, list, &client.ListOptions{Namespace: s.namespace, Raw: &raw})
		},
	})
	if err != nil {
		pause(ctx, relistAfter)
		return
	}
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-stream.ResultChan():
			if !open || event.Type == watch.Error {
				return
			}
			if object, is := event.Object.(client.Object); is && event.Type != watch.Bookmark {
				r.observe(s, known, object, event.Type == watch.Deleted)
			}
		}
	}
}

// observe records the state of an object, or its removal.
func (r *recorder) observe(s *stream, known map[types.NamespacedName]client.Object, object client.Object, gone bool) {
	key := client.ObjectKeyFromObject(object)
	change := judge.Change{At: time.Now(), Before: known[key], After: object}
	if gone {
		change.After = nil
		delete(known, key)
	} else {
		known[key] = object
	}
	if change.Before == nil && change.After == nil ||
		change.Before != nil && change.After != nil && change.Before.GetResourceVersion() == change.After.GetResourceVersion() {
		return
	}
	if change.Before != nil && change.After != nil && change.Before.GetUID() != change.After.GetUID() { // It was recreated during a gap.
		r.add(s.into, judge.Change{At: change.At, Before: change.Before})
		change.Before = nil
	}
	r.add(s.into, change)
}

func (r *recorder) add(into *[]judge.Change, change judge.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	*into = append(*into, change)
}

// begin records that a fault begins. It returns functions that record that its end begins, and that it is over.
func (r *recorder) begin(kind, provider string) (ends, over func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.faults)
	r.faults = append(r.faults, judge.Fault{Kind: kind, Provider: provider, From: time.Now(), Until: time.Now().Add(time.Hour)})
	set := func(when func(*judge.Fault) *time.Time) func() {
		return func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			*when(&r.faults[n]) = time.Now()
		}
	}
	return set(func(f *judge.Fault) *time.Time { return &f.Ending }), set(func(f *judge.Fault) *time.Time { return &f.Until })
}

// record returns the record so far.
func (r *recorder) record(began time.Time) *judge.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	clip := func(c *judge.Cluster) judge.Cluster {
		return judge.Cluster{
			Pods: c.Pods[:len(c.Pods):len(c.Pods)], ShadowPods: c.ShadowPods[:len(c.ShadowPods):len(c.ShadowPods)],
			Leases: c.Leases[:len(c.Leases):len(c.Leases)], Nodes: c.Nodes[:len(c.Nodes):len(c.Nodes)],
			ProviderClusters: c.ProviderClusters[:len(c.ProviderClusters):len(c.ProviderClusters)],
		}
	}
	record := &judge.Record{
		Began: began, Ended: time.Now(), Home: clip(r.clusters[sandbox.Broker]), Node: r.Node, Times: r.Times,
		Consumers: []*judge.Consumer{{ID: sandbox.Consumer(1), Cluster: clip(r.clusters[sandbox.Consumer(1)])}},
		Faults:    append([]judge.Fault(nil), r.faults...),
	}
	for _, p := range r.at {
		one := *p
		one.Cluster = clip(r.clusters[p.ID])
		record.Providers = append(record.Providers, &one)
	}
	return record
}

// pause waits for a time or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
