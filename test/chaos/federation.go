// Package chaos injects faults into a federation of real clusters while pods are created and deleted, records the
// changes at all API servers, and checks the record with test/histories/judge, as for histories in virtual time.
package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

const (
	// settleWithin is how long everything may take to settle after the last fault.
	settleWithin = 4 * time.Minute
	// tooSlow is the response time of the broker's API server above which a history is not judged: client-go limits a
	// lease request to half of the renew deadline (NewFromKubeconfig in resourcelock), so the leader would lose its
	// lease.
	tooSlow = 4 * time.Second
)

// Federation is the set of clusters for histories: a consumer, a broker, and providers. Each provider has one
// VirtualNode with the provider's name.
type Federation struct {
	*sandbox.Sandbox
	// Node is the name of the broker's Node.
	Node string
	// Times are the brokers' times.
	Times judge.Times
}

// providers returns the providers of the federation with their grants.
func (f *Federation) providers(ctx context.Context) (all []*judge.Provider, err error) {
	for _, c := range f.Clusters {
		if c.Role != sandbox.RoleProvider {
			continue
		}
		var virtualNode offloadingv1beta1.VirtualNode
		key := client.ObjectKey{Namespace: "liqo-tenant-" + c.Name, Name: c.Name}
		if err := f.Cluster(sandbox.Broker).Client.Get(ctx, key, &virtualNode); err != nil {
			return nil, err
		}
		all = append(all, &judge.Provider{ID: c.Name, Slices: []judge.Slice{{
			VirtualNode: virtualNode.Name, Millis: virtualNode.Spec.ResourceQuota.Hard.Cpu().MilliValue(),
		}}})
	}
	return all, nil
}

// Happen runs a history and judges it. If a rule was broken, it leaves the objects of the history in place. It returns
// an error if a fault could not be injected, not if a rule was broken.
func (f *Federation) Happen(ctx context.Context, h *History, out io.Writer) (Result, error) {
	home, consumer := f.Cluster(sandbox.Broker), f.Cluster(sandbox.Consumer(1))
	// 1. Create the namespaces in the broker's cluster and in the consumer, and watch them in all clusters.
	err := errors.Join(home.Offload(ctx, h.Name), consumer.Offload(ctx, h.Name), home.Offload(ctx, consumer.RemoteNamespace(h.Name)))
	if err != nil {
		return Result{}, err
	}
	at, err := f.providers(ctx)
	if err != nil {
		return Result{}, err
	}
	recording, stop := context.WithCancel(ctx)
	r := newRecorder(f, h.Name, at)
	defer r.watching.Wait()
	defer stop()
	if err := r.start(recording); err != nil {
		return Result{}, err
	}
	for _, p := range at {
		r.watching.Go(func() { h.complete(recording, f.Cluster(p.ID), home.RemoteNamespace(h.Name)) })
	}
	// 2. Create and delete pods, and inject faults.
	began := time.Now()
	if err := errors.Join(createAll(ctx, home, h.workloads()), createAll(ctx, consumer, h.throughConsumer())); err != nil {
		return Result{}, err
	}
	var happening errgroup.Group
	happening.Go(func() error { return h.happen(ctx, f.Sandbox, r, began) })
	happening.Go(func() error { return h.comeAndGo(ctx, f.Sandbox) })
	if err := happening.Wait(); err != nil {
		return Result{}, err
	}
	// 3. Wait until everything has settled, and stays so.
	over := time.Now()
	well, unsettled, last := over, "", ""
	for time.Since(over) < settleWithin && time.Since(well) < h.stays && ctx.Err() == nil {
		if unsettled = r.record(began).Unsettled(); unsettled != "" {
			last, well = unsettled, time.Now()
		}
		pause(ctx, 200*time.Millisecond)
	}
	if ctx.Err() != nil {
		return Result{}, ctx.Err()
	}
	// 4. Judge.
	record := r.record(began)
	result := h.result(record, r)
	result.RecoverySeconds, result.Last = well.Sub(over).Seconds(), last
	if unsettled != "" {
		result.Violations = append(result.Violations, "not settled: "+unsettled)
	}
	if len(result.Violations) > 0 {
		h.tell(record, result.Violations, out)
		if result.Violated() {
			return result, f.keep(h, record, out)
		}
	}
	stop()
	r.watching.Wait()
	return result, h.clear(ctx, f.Sandbox)
}

func createAll(ctx context.Context, c *sandbox.Cluster, objects []client.Object) error {
	for _, o := range objects {
		if err := c.Client.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// result returns the result of a history, without the time to settle.
func (h *History) result(record *judge.Record, r *recorder) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := Result{
		Name: h.Name, Faults: len(h.faults), Events: r.events, Gaps: r.gaps, Violations: record.Violations(), Pods: pods(record),
		SlowestSeconds: r.slowest.Seconds(), TooSlow: r.slowest > tooSlow, h: h,
	}
	if len(h.faults) == 1 {
		result.Kind, result.AgainSeconds = h.faults[0].kind, again(record)
	}
	return result
}

// tell prints the stories of the pods that violations name.
func (h *History) tell(record *judge.Record, violations []string, out io.Writer) {
	text, told := strings.Join(violations, "\n"), map[string]bool{}
	for i := range record.Home.Pods {
		name := record.Home.Pods[i].Object().GetName()
		if !told[name] && strings.Contains(text, name+" ") {
			told[name] = true
			fmt.Fprintf(out, "%s:\n%s", name, record.Story(name))
		}
	}
	if len(told) == 0 { // The violations concern no pod.
		fmt.Fprint(out, record.Story(""))
	}
}

// keep writes the record beside the logs of the sandbox.
func (f *Federation) keep(h *History, record *judge.Record, out io.Writer) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	path := filepath.Join(f.Dir(), h.Name+".json")
	fmt.Fprintln(out, "the record is in", path)
	return os.WriteFile(path, text, 0o600)
}

// pods counts the pods that existed in the broker's cluster.
func pods(record *judge.Record) int {
	all := map[string]bool{}
	for i := range record.Home.Pods {
		all[string(record.Home.Pods[i].Object().GetUID())] = true
	}
	return len(all)
}

// again returns how long after the beginning of the fault all pods were Ready again for good, in seconds; 0 if all
// stayed Ready.
func again(record *judge.Record) float64 {
	from, last := record.Faults[0].From, time.Time{}
	notReady := map[string]bool{}
	for i := range record.Home.Pods {
		c := &record.Home.Pods[i]
		if c.At.Before(from) {
			continue
		}
		pod := c.Object().(*corev1.Pod)
		ready := c.After == nil || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if !ready {
			notReady[string(pod.UID)] = true
		} else if notReady[string(pod.UID)] {
			delete(notReady, string(pod.UID))
			last = c.At
		}
	}
	if last.IsZero() {
		return 0
	}
	return last.Sub(from).Seconds()
}
