package termination

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/remote"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/requeue"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

const (
	// checkWorkers is how many VirtualNodes are asked at once. One that does not answer occupies a worker until the
	// deadline.
	checkWorkers = 64
	// firstInterval and lastInterval are the backoff between two lists of one VirtualNode.
	firstInterval = 200 * time.Millisecond
	lastInterval  = 5 * time.Second
)

// Pod is a pod that leaves a provider.
type Pod struct {
	// Name is the pod's name in the broker's cluster. Without a UID any pod of the name is asked about.
	Name types.NamespacedName
	UID  types.UID
	// VirtualNode is where the pod was assigned, RemoteNamespace where it is at the provider.
	VirtualNode, RemoteNamespace string
	// Via is the VirtualNode whose identity is used to ask: the same, or another one of the provider if that is gone.
	Via scheduler.Place
	// Orphan means that no virtual kubelet deletes its ShadowPod, so it is deleted here.
	Orphan bool
	// Ends means that the pod is being deleted, or has ended, here as well. The ShadowPod of an orphan that has ended
	// only at its provider is kept until that is written.
	Ends bool
	// Settled means that no creation of its ShadowPod is in flight any more, which is final. Earlier answers do not
	// count: the provider is asked again.
	Settled bool
	// Waited means that the pod has not existed at the provider for a while. Earlier answers do not count: the provider
	// is asked again.
	Waited bool
}

// Answer is a provider's answer about a pod.
type Answer struct {
	// Known is false until a list that began after the question has been read, and after an attempt that failed;
	// Present, Status and Ended are zero then.
	Known bool
	// Present means that the provider has the pod or its ShadowPod.
	Present bool
	// Status is the status of the pod; nil if there is none.
	Status *corev1.PodStatus
	// Ended means that the pod has ended by itself there, and not because it is deleted.
	Ended bool
	// Stopped means that the provider only has a pod that is being deleted and does not run any more
	// (remote.Forwarded).
	Stopped bool
	// Remaking means that Liqo's controller there may be making the pod, for the first time or again, as far as is known:
	// the last answer with a ShadowPod had no pod of it, or one that was evicted or deleted. A pod without a ShadowPod is
	// not made again.
	Remaking bool
	// Asked is when the pod was asked about first, settled or not.
	Asked time.Time
	// Since is when the last answer came, or Asked if none has.
	Since time.Time
	// Alive is when the provider last answered anything that shows that it is not silent: any of its questions, a read
	// of one pod after a failed list, or that it received too many requests. It is zero if it never did.
	Alive time.Time
	// Err is why the last list has no answer; nil if it has one, or if none has ended.
	Err error
}

// Unasked reports whether the provider was not asked, because there is no connection to it.
func (a *Answer) Unasked() bool { return errors.Is(a.Err, errNoConnection) }

// Refused reports whether the provider is alive, but does not answer this question: the rights there are missing, or
// the namespace, or it does not accept this cluster.
func (a *Answer) Refused() bool {
	return !kerrors.IsTooManyRequests(a.Err) && (untrusted.Rejected(a.Err) || kerrors.IsNotFound(a.Err))
}

// question is a pod that is asked about, and the last answer.
type question struct {
	pod    Pod
	answer Answer
	// endRead means that the ShadowPod, which has no pod, was read: it does not show that the pod has ended. It is used
	// by one Check at a time.
	endRead bool
}

// CheckerConfig is everything that a Checker needs.
type CheckerConfig struct {
	Log         logr.Logger
	Connections *remote.Connections
	// Connect returns a connection to the provider of a VirtualNode that has none, because it is gone; nil if there is
	// none.
	Connect func(ctx context.Context, at scheduler.Place) *remote.Connection
	// Queue requeues pods.
	Queue *requeue.Queue
	// Timeout bounds one request, and the time after which a Check leaves the rest of a long list to the next one.
	Timeout time.Duration
}

// Checker asks providers about pods. It is safe for concurrent use.
type Checker struct {
	CheckerConfig

	// queue has the VirtualNodes that are to be asked, by keyOf.
	queue    requeue.Queue
	interval workqueue.TypedRateLimiter[scheduler.Place]

	mu sync.Mutex
	// questions are those that wait for an answer, by the VirtualNode that is asked, and the pod. Guarded by mu.
	questions map[scheduler.Place]map[types.NamespacedName]*question
	// listings are the lists that have begun and not ended, by the VirtualNode that is asked; guarded by mu. Each is
	// used by the worker of that VirtualNode only.
	listings map[scheduler.Place]map[group]*listing
}

// listing is a list that has begun, and the questions that it answers: those that were asked before it began.
type listing struct {
	*remote.Listing
	questions []*question
}

// group are pods that one list answers for.
type group struct{ virtualNode, remoteNamespace string }

// NewChecker returns a Checker, which asks nothing before SetUp.
func NewChecker(cfg CheckerConfig) *Checker {
	return &Checker{
		CheckerConfig: cfg,
		interval:      workqueue.NewTypedItemExponentialFailureRateLimiter[scheduler.Place](firstInterval, lastInterval),
		questions:     map[scheduler.Place]map[types.NamespacedName]*question{}, listings: map[scheduler.Place]map[group]*listing{},
	}
}

// SetUp registers the controller that asks with the manager; it runs on the leader.
func (c *Checker) SetUp(mgr manager.Manager) error {
	// Questions from before the queue started are added then.
	started := source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		defer c.addAll()
		return c.queue.Source().Start(ctx, queue)
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("leaving").
		WatchesRawSource(started).
		WithOptions(controller.Options{MaxConcurrentReconciles: checkWorkers, SkipNameValidation: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			return ctrl.Result{RequeueAfter: c.Check(ctx, scheduler.Place{Provider: r.Namespace, VirtualNode: r.Name})}, nil
		}))
	if err != nil {
		return fmt.Errorf("pods that leave: %w", err)
	}
	return nil
}

// Ask returns the last answer about a pod. The first call returns no answer: the provider is asked repeatedly until
// Forget, and the pod is requeued when the answer is known and when it changes.
func (c *Checker) Ask(pod Pod) Answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.questions[pod.Via]
	known := of[pod.Name]
	settled := pod
	settled.Settled = true
	if known != nil && (known.pod == pod || known.pod == settled) {
		return known.answer
	}
	if of == nil {
		of = map[types.NamespacedName]*question{}
		c.questions[pod.Via] = of
	}
	now := time.Now()
	asked := &question{pod: pod, answer: Answer{Asked: now, Since: now}}
	if known != nil && known.pod.UID == pod.UID && known.pod.VirtualNode == pod.VirtualNode {
		before := &known.answer
		asked.answer = Answer{Asked: before.Asked, Since: before.Since, Alive: before.Alive, Remaking: before.Remaking}
	}
	of[pod.Name] = asked
	c.interval.Forget(pod.Via)
	c.queue.Add(keyOf(pod.Via))
	return asked.answer
}

// keyOf returns the key of a VirtualNode in the queue.
func keyOf(at scheduler.Place) types.NamespacedName {
	return types.NamespacedName{Namespace: at.Provider, Name: at.VirtualNode}
}

// addAll asks all about which there are questions.
func (c *Checker) addAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for via := range c.questions {
		c.queue.Add(keyOf(via))
	}
}

// Forget drops the questions about a pod.
func (c *Checker) Forget(name types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for via, of := range c.questions {
		delete(of, name)
		if len(of) == 0 {
			delete(c.questions, via)
		}
	}
}

// Check asks a provider about all of its pods once, with the identity of a VirtualNode, and returns how long to wait
// before the next time; 0 if there is nothing to ask. Long lists take several calls.
func (c *Checker) Check(ctx context.Context, via scheduler.Place) time.Duration {
	groups := c.pending(via)
	if len(groups) == 0 {
		c.interval.Forget(via)
		return 0
	}
	connection := c.Connections.Get(via)
	if connection == nil {
		connecting, cancel := context.WithTimeout(ctx, c.Timeout)
		connection = c.Connect(connecting, via)
		cancel()
	}
	if connection == nil {
		for _, questions := range groups {
			c.fail(questions, errNoConnection)
		}
		return c.interval.When(via)
	}
	began, unfinished := time.Now(), false
	for where, questions := range groups {
		// The groups come in no order, so that each is checked eventually, however long the lists of the others are.
		if time.Since(began) >= c.Timeout {
			unfinished = true
			break
		}
		answered, done := c.checkGroup(ctx, connection, via, where, questions)
		if !answered && !c.reads(ctx, connection, where.remoteNamespace) {
			break // The others would not be answered either.
		}
		c.observeAlive(via)
		unfinished = unfinished || !done
	}
	if unfinished {
		return time.Millisecond
	}
	return c.interval.When(via)
}

// errNoConnection means that this leader has no kubeconfig of the provider.
var errNoConnection = errors.New("no kubeconfig for the provider")

// pending returns the open questions. Lists that no question waits for any more are forgotten.
func (c *Checker) pending(via scheduler.Place) map[group][]*question {
	c.mu.Lock()
	defer c.mu.Unlock()
	groups := map[group][]*question{}
	for _, q := range c.questions[via] {
		where := group{q.pod.VirtualNode, q.pod.RemoteNamespace}
		groups[where] = append(groups[where], q)
	}
	maps.DeleteFunc(c.listings[via], func(where group, l *listing) bool {
		return !slices.ContainsFunc(l.questions, func(q *question) bool { return slices.Contains(groups[where], q) })
	})
	if len(c.listings[via]) == 0 {
		delete(c.listings, via)
	}
	return groups
}

// listing returns the list in progress; if none has begun, a new list for all questions.
func (c *Checker) listing(via scheduler.Place, where group, questions []*question) *listing {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.listings[via][where]; l != nil {
		return l
	}
	names := make([]string, len(questions))
	for i, q := range questions {
		names[i] = q.pod.Name.Name
	}
	l := &listing{Listing: remote.NewListing(where.virtualNode, where.remoteNamespace, names), questions: questions}
	if c.listings[via] == nil {
		c.listings[via] = map[group]*listing{}
	}
	c.listings[via][where] = l
	return l
}

// drop forgets a list, so that the next one starts from the beginning.
func (c *Checker) drop(via scheduler.Place, where group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.listings[via], where)
}

// fail records that questions have no answer. Earlier answers do not count any more: they may be old.
func (c *Checker) fail(questions []*question, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range questions {
		before := &q.answer
		q.answer = Answer{Asked: before.Asked, Since: before.Since, Alive: before.Alive, Remaking: before.Remaking, Err: err}
	}
}

// observeAlive records that a provider is not silent, for all questions.
func (c *Checker) observeAlive(via scheduler.Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.questions[via] {
		q.answer.Alive = time.Now()
	}
}

// reads reports whether a provider that has not answered a list is not silent: it reads one pod, or rejects that. The
// list may be too long.
func (c *Checker) reads(ctx context.Context, connection *remote.Connection, namespace string) bool {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err := connection.Reads(ctx, namespace)
	return err == nil || untrusted.Rejected(err)
}

// checkGroup asks about the pods of one remote namespace, for Timeout or a little longer. It reports whether the
// provider answered, even with a rejection, and whether the list is complete. An incomplete list continues there the
// next time. The connection may be another VirtualNode's than via.
func (c *Checker) checkGroup(ctx context.Context, connection *remote.Connection, via scheduler.Place, where group, questions []*question,
) (answered, done bool) {
	l := c.listing(via, where, questions)
	for began := time.Now(); !done; {
		if time.Since(began) >= c.Timeout || ctx.Err() != nil {
			return true, false
		}
		asking, cancel := context.WithTimeout(ctx, c.Timeout)
		var err error
		done, err = l.Continue(asking, connection)
		cancel()
		if err == nil {
			continue
		}
		c.fail(l.questions, err)
		c.Log.Info("Cannot ask a provider about the pods that leave it", "provider", via.Provider, "virtualNode", via.VirtualNode,
			"namespace", where.remoteNamespace, "pods", len(l.questions), "error", untrusted.Text(err.Error()))
		if refused := (&Answer{Err: err}).Refused(); refused || kerrors.IsTooManyRequests(err) {
			if refused {
				c.drop(via, where)
			}
			return true, true
		}
		return false, true
	}
	c.drop(via, where)
	c.readEnds(ctx, connection, l.questions, l.Found())
	for _, name := range c.answer(l.questions, l.Found()) {
		c.Queue.Add(name)
	}
	c.deleteOrphans(ctx, connection, l.questions, l.Found())
	return true, true
}

// maxEnds is how many ShadowPods are read after one list.
const maxEnds = 20

// readEnds reads, once, the ShadowPods of pods that the provider does not have. Its lists do not show how these have
// ended.
func (c *Checker) readEnds(ctx context.Context, connection *remote.Connection, questions []*question, found map[string]remote.Forwarded) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	read := 0
	for _, q := range questions {
		name := q.pod.Name.Name
		there := of(found[name], q.pod.UID)
		if there.Status != nil {
			q.endRead = false // It may end, and be removed after that.
		}
		if there.ShadowPod == "" || there.Status != nil || q.endRead || q.pod.Ends || q.pod.UID == "" || read == maxEnds {
			continue
		}
		read++
		end, err := connection.End(ctx, q.pod.RemoteNamespace, name, there.ShadowPod)
		if err != nil {
			c.Log.Info("Cannot read the ShadowPod of a pod that leaves its provider, retrying with the next check",
				"pod", q.pod.Name, "virtualNode", q.pod.VirtualNode, "error", untrusted.Text(err.Error()))
			return // The next check tries again.
		}
		if q.endRead = end == nil; end != nil {
			found[name] = there.WithEnd(end)
		}
	}
}

// of returns the parts that were made for a pod; without a UID, for any pod.
func of(f remote.Forwarded, uid types.UID) remote.Forwarded {
	if uid == "" {
		f.Ended = false
		return f
	}
	return f.Of(uid)
}

// deleteOrphans deletes the ShadowPods of pods whose virtual kubelet is gone. One without a pod stays until it was
// read.
func (c *Checker) deleteOrphans(
	ctx context.Context, connection *remote.Connection, questions []*question, found map[string]remote.Forwarded,
) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	for _, q := range questions {
		there := of(found[q.pod.Name.Name], q.pod.UID)
		unread := there.Status == nil && !q.endRead && q.pod.UID != ""
		if !q.pod.Orphan || there.ShadowPod == "" || (there.Ended || unread) && !q.pod.Ends || !c.asks(q) {
			continue
		}
		if err := connection.DeleteShadowPod(ctx, q.pod.RemoteNamespace, q.pod.Name.Name, there.ShadowPod); err != nil {
			c.Log.Info("Cannot delete the ShadowPod of a pod whose virtual kubelet is gone", "pod", q.pod.Name,
				"virtualNode", q.pod.VirtualNode, "error", err.Error())
			return // The next check tries again.
		}
	}
}

// asks reports whether a question still waits for an answer: a VirtualNode of the same name may have been made since,
// and its virtual kubelet may have taken the ShadowPod over.
func (c *Checker) asks(q *question) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.questions[q.pod.Via][q.pod.Name] == q
}

// answer records the provider's answers, and returns the pods that are to be requeued. A question that was replaced
// while the list ran has no answer by it.
func (c *Checker) answer(questions []*question, found map[string]remote.Forwarded) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed []types.NamespacedName
	for _, q := range questions {
		f := of(found[q.pod.Name.Name], q.pod.UID)
		present, stopped := f.ShadowPod != "" || f.Status != nil, f.ShadowPod == "" && f.Stopped
		remaking := f.Remaking() || !present && q.answer.Remaking
		if !q.answer.Known || present != q.answer.Present || f.Ended != q.answer.Ended || stopped != q.answer.Stopped ||
			remaking != q.answer.Remaking {
			changed = append(changed, q.pod.Name)
		}
		q.answer = Answer{
			Known: true, Present: present, Status: f.Status, Ended: f.Ended, Stopped: stopped, Remaking: remaking,
			Asked: q.answer.Asked, Since: time.Now(), Alive: q.answer.Alive,
		}
	}
	return changed
}
