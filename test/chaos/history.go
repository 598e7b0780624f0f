package main

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

// seconds is a label of pods that complete: after how long.
const seconds = "chaos/seconds"

// planned is a fault that will happen.
type planned struct {
	kind, provider string
	at, takes      time.Duration
}

// history is what happens to the federation.
type history struct {
	name   string
	random *rand.Rand
	faults []planned
	// replicas are those of each Deployment, of which there are two; churn is whether pods come and go.
	replicas int
	churn    bool
}

const (
	// calm is how long pods have to start before the first fault, storm in which time faults begin.
	calm, storm = 15 * time.Second, 60 * time.Second
	// atOnce is how many faults a history has at most.
	atOnce = 8
)

// generate makes a history from a seed.
func generate(seed uint64) *history {
	random := rand.New(rand.NewPCG(seed, 2))
	h := &history{name: fmt.Sprintf("chaos-%d", seed), random: random, replicas: 10 + random.IntN(20), churn: true}
	names, all := kindNames(), kinds()
	busy := map[string]time.Duration{}
	for range 2 + random.IntN(atOnce-1) {
		f := planned{kind: names[random.IntN(len(names))], provider: sandbox.Provider(1 + random.IntN(providers))}
		k := all[f.kind]
		f.at, f.takes = calm+time.Duration(random.Int64N(int64(storm))), time.Second+time.Duration(random.Int64N(int64(k.longest)))
		// Two faults of one process would end each other.
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

// directed is a history with one fault, and pods that stay.
func directed(kind string, n int, takes time.Duration) *history {
	f := planned{kind: kind, provider: sandbox.Provider(1 + n%providers), at: calm, takes: takes}
	return &history{name: fmt.Sprintf("chaos-directed-%d", n), random: rand.New(rand.NewPCG(uint64(n), 3)), replicas: 30, faults: []planned{f}}
}

// last is when the last fault is over.
func (h *history) last() (last time.Duration) {
	for _, f := range h.faults {
		last = max(last, f.at+f.takes)
	}
	return last
}

// template is a pod that requests a tenth of a CPU, or two.
func (h *history) template(app string, completes int) corev1.PodTemplateSpec {
	labels := map[string]string{"app": app}
	if completes > 0 {
		labels[seconds] = fmt.Sprint(completes)
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(2)),
			Tolerations: []corev1.Toleration{ // A history is shorter than the time after which Kubernetes evicts.
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
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

// workloads are what a consumer has in a namespace.
func (h *history) workloads() (all []client.Object) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: h.name, Name: name} }
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
		Replicas: ptr.To(int32(4)), PodManagementPolicy: appsv1.ParallelPodManagement, Selector: selects("db"), Template: h.template("db", 0),
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

// comeAndGo scales and deletes what there is, at random times until the last fault is over.
func (h *history) comeAndGo(ctx context.Context, c *sandbox.Cluster) error {
	end := time.Now().Add(max(h.last(), calm))
	for h.churn && time.Until(end) > 0 && ctx.Err() == nil {
		pause(ctx, time.Duration(2+h.random.IntN(6))*time.Second)
		err := h.change(ctx, c)
		if err != nil && ctx.Err() == nil {
			continue // Its API server is away.
		}
	}
	return ctx.Err()
}

func (h *history) change(ctx context.Context, c *sandbox.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	switch h.random.IntN(3) {
	case 0:
		var web appsv1.Deployment
		if err := c.Client.Get(ctx, client.ObjectKey{Namespace: h.name, Name: "web"}, &web); err != nil {
			return err
		}
		web.Spec.Replicas = ptr.To(int32(5 + h.random.IntN(25)))
		return c.Client.Update(ctx, &web)
	case 1:
		name := fmt.Sprintf("%s-%d", []string{"db", "never", "bare"}[h.random.IntN(3)], h.random.IntN(4))
		return client.IgnoreNotFound(c.Client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: name}}))
	default:
		var pods corev1.PodList
		if err := c.Client.List(ctx, &pods, client.InNamespace(h.name), client.MatchingLabels{"app": "api"}); err != nil || len(pods.Items) == 0 {
			return err
		}
		return client.IgnoreNotFound(c.Client.Delete(ctx, &pods.Items[h.random.IntN(len(pods.Items))]))
	}
}

// complete is what the kubelets of the providers do with pods that complete, which the simulated ones do not end.
func (h *history) complete(ctx context.Context, p *sandbox.Cluster, namespace string) {
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
					pod.Status.ContainerStatuses[j].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}}
				}
				_ = p.Client.Status().Update(ctx, pod)
			}
		}
	}
}

// happen lets the faults happen at their times, and ends all of them whatever happens.
func (h *history) happen(ctx context.Context, s *sandbox.Sandbox, r *recorder, began time.Time) error {
	all := kinds()
	var faults errgroup.Group
	for _, f := range h.faults {
		faults.Go(func() error {
			pause(ctx, time.Until(began.Add(f.at)))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			over := r.begin(f.kind, f.provider)
			defer over()
			end, err := all[f.kind].begin(ctx, s, f.provider)
			if err == nil {
				pause(ctx, f.takes)
			}
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

// clear deletes the namespace of the history, and waits until its pods are gone.
func (h *history) clear(ctx context.Context, s *sandbox.Sandbox) error {
	home := s.Cluster(sandbox.Broker)
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.name}}
	return retried(ctx, func(ctx context.Context) error {
		if err := client.IgnoreNotFound(home.Client.Delete(ctx, ns)); err != nil && !apierrors.IsConflict(err) {
			return err
		}
		if err := home.Client.Get(ctx, client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s is still there (%w)", h.name, err)
		}
		return nil
	})
}
