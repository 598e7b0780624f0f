package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// seconds is a label of pods that complete: the number of seconds after which they do.
const seconds = "chaos/seconds"

// planned is a planned fault.
type planned struct {
	kind, provider string
	at, takes      time.Duration
}

// History is the plan of a run: workloads and faults.
type History struct {
	// Name is the name of its namespaces.
	Name   string
	random *rand.Rand
	faults []planned
	// replicas is the size of each of the two Deployments. churn creates and deletes pods during the run.
	replicas int
	churn    bool
	// tolerated is how long pods stay on a Node that is not Ready; nil means indefinitely.
	tolerated *int64
	// stays is how long everything must stay settled at the end: a process that resumes may still make late writes.
	stays time.Duration
}

const (
	// calm is the time for pods to start before the first fault, storm the period in which faults begin.
	calm, storm = 15 * time.Second, 60 * time.Second
	// atOnce is the largest number of faults in a history.
	atOnce = 8
	// late is how long to wait at the end for late writes of processes that resumed.
	late = 15 * time.Second
)

// Random generates a history from a seed.
func Random(seed uint64, providers int) *History {
	random := rand.New(rand.NewPCG(seed, 2))
	h := &History{Name: fmt.Sprintf("chaos-%d", seed), random: random, replicas: 10 + random.IntN(20), churn: true, stays: late}
	names, all := kindNames(), kinds()
	busy := map[string]time.Duration{}
	for range 2 + random.IntN(atOnce-1) {
		f := planned{kind: names[random.IntN(len(names))], provider: sandbox.Provider(1 + random.IntN(providers))}
		k := all[f.kind]
		f.at, f.takes = calm+time.Duration(random.Int64N(int64(storm))), time.Second+time.Duration(random.Int64N(int64(k.longest)))
		// The end of one fault of a process would end the other.
		free := !slices.ContainsFunc(k.on(f.provider), func(on string) bool { return busy[on] != 0 && f.at < busy[on]+5*time.Second })
		if !free {
			continue
		}
		for _, on := range k.on(f.provider) {
			busy[on] = f.at + f.takes
		}
		h.faults = append(h.faults, f)
	}
	return h
}

// Single returns a history with one fault and no churn.
func Single(name, kind, provider string, takes time.Duration) *History {
	h := &History{
		Name: name, random: rand.New(rand.NewPCG(uint64(takes), 3)), replicas: 30, stays: late,
		faults: []planned{{kind: kind, provider: provider, at: calm, takes: takes}},
	}
	if kind == awayForLong {
		h.tolerated, h.faults[0].takes = ptr.To(int64(10)), max(takes, 80*time.Second)
	}
	return h
}

// Short returns a history with one fault of each important kind, most of them at the same time, in less than a minute.
// The end-to-end suite uses it.
func Short(name string) *History {
	at := func(provider int, kind string, at, takes time.Duration) planned {
		return planned{kind: kind, provider: sandbox.Provider(provider), at: at * time.Second, takes: takes * time.Second}
	}
	return &History{
		Name: name, random: rand.New(rand.NewPCG(1, 4)), replicas: 15, churn: true, stays: 5 * time.Second,
		faults: []planned{
			at(1, "provider hangs", 12, 26), // Longer than failover.after.
			at(2, "provider's webhook hangs", 13, 10),
			at(3, "drain", 14, 20),
			at(1, "leader is killed", 16, 10),
			at(2, "virtual kubelet is killed", 26, 8),
			at(3, "virtual kubelet stops", 30, 15),
			at(2, "provider's controllers stop", 32, 12),
			at(1, "leader stops", 35, 16), // Longer than its lease.
			at(1, "home hangs", 40, 4),
			at(1, "consumer refuses", 20, 12),
		},
	}
}

// last returns when the last fault is over.
func (h *History) last() (last time.Duration) {
	for _, f := range h.faults {
		last = max(last, f.at+f.takes)
	}
	return last
}

// template returns the template of a pod that requests one or two tenths of a CPU.
func (h *History) template(app string, completes int) corev1.PodTemplateSpec {
	labels := map[string]string{"app": app}
	if completes > 0 {
		labels[seconds] = fmt.Sprint(completes)
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(2)),
			Tolerations: []corev1.Toleration{
				{
					Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
					TolerationSeconds: h.tolerated,
				},
				{
					Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
					TolerationSeconds: h.tolerated,
				},
			},
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU:    *resource.NewMilliQuantity(int64(100*(1+h.random.IntN(2))), resource.DecimalSI),
					corev1.ResourceMemory: resource.MustParse("8Mi"),
				}},
			}},
		},
	}
}

// workloads returns the workloads of a namespace in the broker's cluster.
func (h *History) workloads() (all []client.Object) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: h.Name, Name: name} }
	selects := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	for _, name := range []string{"web", "api"} {
		all = append(all, &appsv1.Deployment{ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(h.replicas)), Selector: selects(name), Template: h.template(name, 0),
		}})
	}
	if !h.churn {
		return all
	}
	never := h.template("never", 0)
	never.Annotations[v1alpha1.FailoverAnnotation] = string(v1alpha1.FailoverNever)
	all = append(all, &appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(int32(4)), PodManagementPolicy: appsv1.ParallelPodManagement, Selector: selects("db"),
		Template: h.template("db", 0),
	}}, &appsv1.StatefulSet{ObjectMeta: meta("never"), Spec: appsv1.StatefulSetSpec{
		Replicas: ptr.To(int32(3)), PodManagementPolicy: appsv1.ParallelPodManagement, Selector: selects("never"), Template: never,
	}})
	for i := range 3 {
		name := fmt.Sprintf("job-%d", i)
		job := h.template(name, 5+h.random.IntN(40))
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		all = append(all, &batchv1.Job{ObjectMeta: meta(name), Spec: batchv1.JobSpec{
			Completions: ptr.To(int32(4)), Parallelism: ptr.To(int32(2)), BackoffLimit: ptr.To(int32(20)), Template: job,
		}})
	}
	for i := range 4 {
		bare := h.template(fmt.Sprintf("bare-%d", i), 0)
		all = append(all, &corev1.Pod{ObjectMeta: meta(fmt.Sprintf("bare-%d", i)), Spec: bare.Spec})
	}
	return all
}

// throughConsumer returns the workloads in the consumer's own cluster. Liqo forwards their pods to the broker's
// cluster.
func (h *History) throughConsumer() (all []client.Object) {
	meta := metav1.ObjectMeta{Namespace: h.Name, Name: "shop"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}
	all = append(all, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(5 + h.random.IntN(6))), Selector: selector, Template: h.template("shop", 0),
	}})
	for i := range 3 {
		name := fmt.Sprintf("cart-%d", i)
		all = append(all, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.Name, Name: name}, Spec: h.template(name, 0).Spec})
	}
	return all
}

// comeAndGo scales and deletes workloads at random times until the last fault is over.
func (h *History) comeAndGo(ctx context.Context, s *sandbox.Sandbox) error {
	end := time.Now().Add(max(h.last(), calm))
	for h.churn && time.Until(end) > 0 && ctx.Err() == nil {
		pause(ctx, time.Duration(2+h.random.IntN(6))*time.Second)
		_ = h.change(ctx, s) // The API server may be down.
	}
	return ctx.Err()
}

// change scales a Deployment or deletes a pod, in the broker's or a consumer's cluster.
func (h *History) change(ctx context.Context, s *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := s.Cluster(sandbox.Broker)
	switch h.random.IntN(5) {
	case 0:
		return h.scale(ctx, c, "web", 5+h.random.IntN(25))
	case 3:
		return h.scale(ctx, s.Cluster(sandbox.Consumer(1)), "shop", 2+h.random.IntN(10))
	case 4:
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.Name, Name: fmt.Sprintf("cart-%d", h.random.IntN(3))}}
		return client.IgnoreNotFound(s.Cluster(sandbox.Consumer(1)).Client.Delete(ctx, pod))
	case 1:
		name := fmt.Sprintf("%s-%d", []string{"db", "never", "bare"}[h.random.IntN(3)], h.random.IntN(4))
		return client.IgnoreNotFound(c.Client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.Name, Name: name}}))
	default:
		var pods corev1.PodList
		err := c.Client.List(ctx, &pods, client.InNamespace(h.Name), client.MatchingLabels{"app": "api"})
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		return client.IgnoreNotFound(c.Client.Delete(ctx, &pods.Items[h.random.IntN(len(pods.Items))]))
	}
}

func (h *History) scale(ctx context.Context, c *sandbox.Cluster, name string, replicas int) error {
	var deployment appsv1.Deployment
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: h.Name, Name: name}, &deployment); err != nil {
		return err
	}
	deployment.Spec.Replicas = ptr.To(int32(replicas))
	return c.Client.Update(ctx, &deployment)
}

// complete completes the pods that have the label seconds, which the simulated kubelets of the providers do not do.
func (h *History) complete(ctx context.Context, p *sandbox.Cluster, namespace string) {
	ran := map[string]time.Time{}
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		var pods corev1.PodList
		if err := p.Client.List(ctx, &pods, client.InNamespace(namespace), client.HasLabels{seconds}); err != nil {
			continue
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
				continue
			}
			if ran[string(pod.UID)].IsZero() {
				ran[string(pod.UID)] = time.Now()
			}
			if takes, err := time.ParseDuration(pod.Labels[seconds] + "s"); err == nil && time.Since(ran[string(pod.UID)]) >= takes {
				pod.Status.Phase, pod.Status.Conditions = corev1.PodSucceeded, []corev1.PodCondition{{
					Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "PodCompleted",
				}}
				for j := range pod.Status.ContainerStatuses {
					pod.Status.ContainerStatuses[j].Ready = false
					pod.Status.ContainerStatuses[j].State = corev1.ContainerState{
						Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"},
					}
				}
				_ = p.Client.Status().Update(ctx, pod)
			}
		}
	}
}

// happen injects the faults at their times, and ends each of them even after an error.
func (h *History) happen(ctx context.Context, s *sandbox.Sandbox, r *recorder, began time.Time) error {
	all := kinds()
	var faults errgroup.Group
	for _, f := range h.faults {
		faults.Go(func() error {
			pause(ctx, time.Until(began.Add(f.at)))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			ends, over := r.begin(f.kind, f.provider)
			defer over()
			end, err := all[f.kind].begin(ctx, s, f.provider)
			if err == nil {
				pause(ctx, f.takes)
			}
			ends()
			if end != nil {
				ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
				defer cancel()
				err = errors.Join(err, end(ending))
			}
			if err != nil {
				return fmt.Errorf("%s at %s: %w", f.kind, f.provider, err)
			}
			return nil
		})
	}
	return faults.Wait()
}

// clear deletes the namespaces of the history and waits until they are gone.
func (h *History) clear(ctx context.Context, s *sandbox.Sandbox) error {
	home, consumer := s.Cluster(sandbox.Broker), s.Cluster(sandbox.Consumer(1))
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	gone := func(c *sandbox.Cluster, name string, ends bool) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return retried(ctx, func(ctx context.Context) error {
			if ends {
				if err := client.IgnoreNotFound(c.Client.Delete(ctx, ns)); err != nil && !apierrors.IsConflict(err) {
					return err
				}
			}
			if err := c.Client.Get(ctx, client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
				return fmt.Errorf("namespace %s of %s is still there (%w)", name, c.Name, err)
			}
			return nil
		})
	}
	// Liqo deletes the namespace in the broker's cluster to which the consumer's namespace is offloaded.
	return errors.Join(gone(home, h.Name, true), gone(consumer, h.Name, true), gone(home, consumer.RemoteNamespace(h.Name), false))
}
