package histories

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/test/histories/judge"
)

const (
	// settleWithin is how long everything may take to settle after the last fault.
	settleWithin = 180 * time.Second
	// stays is how long everything must stay settled: a process that resumes may still make late writes.
	stays = 20 * time.Second
)

// history is the plan of a simulation: providers, pods and faults. All times are relative to its beginning.
type history struct {
	Seed uint64 `json:"seed"`
	// Providers lists, for each provider, how many CPUs each of its slices grants.
	Providers [][]int `json:"providers"`
	Replicas  int     `json:"replicas"`
	// LateNamespace creates the namespace with its first pod.
	LateNamespace bool `json:"lateNamespace,omitempty"`
	// Scheduled lets kube-scheduler bind the pods. Otherwise pods are bound when they are created, even beyond the
	// capacity of the Node.
	Scheduled bool `json:"scheduled,omitempty"`
	// SlowAdmission makes the providers' webhooks delay some creations of pods.
	SlowAdmission bool      `json:"slowAdmission,omitempty"`
	Pods          []podSpec `json:"pods"`
	Faults        []fault   `json:"faults"`
	// interrupter interrupts a broker at one of its writes; nil for no interruption.
	interrupter *interrupter
}

// podSpec is a pod of a consumer.
type podSpec struct {
	Name string        `json:"name"`
	CPUs int           `json:"cpus"`
	At   time.Duration `json:"at"`
	// Deleted is when the pod is deleted; 0 means never.
	Deleted time.Duration `json:"deleted,omitempty"`
	// Again creates a pod of the same name once this one is gone, as a StatefulSet does.
	Again bool `json:"again,omitempty"`
	// Seconds is how long the container runs before it completes; 0 means until it is stopped.
	Seconds int `json:"seconds,omitempty"`
	// App is the value of the pod's label app. Pods without it are not replicas of each other.
	App string `json:"app,omitempty"`
	// Alone keeps the pod away from the providers of other such pods, by an anti-affinity.
	Alone bool `json:"alone,omitempty"`
	// Claim has the pod use two PersistentVolumeClaims: one of its own, and one that all such pods use.
	Claim bool `json:"claim,omitempty"`
	// Never means that the pod must not run twice (failover: never).
	Never bool `json:"never,omitempty"`
	// Once sets restartPolicy Never.
	Once bool `json:"once,omitempty"`
	// Job makes a Job own the pod. The Job waits until the pod has ended (podFailurePolicy).
	Job bool `json:"job,omitempty"`
	// Force deletes the pod without a grace period.
	Force bool `json:"force,omitempty"`
}

// fault is one fault of a kind in faultKinds, at a provider or at one of its slices where that applies.
type fault struct {
	Kind     string        `json:"kind"`
	Provider int           `json:"provider"`
	Slice    int           `json:"slice,omitempty"`
	At       time.Duration `json:"at"`
	For      time.Duration `json:"for"`
}

func (f fault) until() time.Duration { return f.At + f.For }

// of returns the slice of a provider that the fault applies to.
func (f fault) of(p *provider) *slice { return p.slices[f.Slice%len(p.slices)] }

func (h *history) String() string {
	text, err := json.Marshal(h)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// faultKind defines how a fault begins and ends, its longest duration, and how often it is drawn.
type faultKind struct {
	share      int
	longest    time.Duration
	begin, end func(w *world, p *provider, f fault)
}

// atProvider returns a function that changes the weather at a provider.
func atProvider(change func(p *provider, w *weather)) func(*world, *provider, fault) {
	return func(_ *world, p *provider, _ fault) { p.weather.change(func(w *weather) { change(p, w) }) }
}

func atHome(change func(w *weather)) func(*world, *provider, fault) {
	return func(w *world, _ *provider, _ fault) { w.weather.change(change) }
}

func inSpec(change func(*v1alpha1.ProviderClusterSpec)) func(*world, *provider, fault) {
	return func(w *world, p *provider, _ fault) {
		if w.waitHome() {
			w.setSpec(p, change)
		}
	}
}

func leaderOf(do func(*process)) func(*world, *provider, fault) {
	return func(w *world, _ *provider, _ fault) {
		if p := w.leader(); p != nil {
			do(p)
		}
	}
}

func kubeletOf(do func(*virtualKubelet, fault)) func(*world, *provider, fault) {
	return func(w *world, p *provider, f fault) {
		w.mu.Lock()
		k := w.kubelets[f.of(p)]
		w.mu.Unlock()
		if k != nil {
			do(k, f)
		}
	}
}

func nothing(*world, *provider, fault) {}

// denied returns a kind of fault in which a provider answers some requests with an HTTP status code.
func denied(share int, request string, code int) faultKind {
	change := func(begins bool) func(*world, *provider, fault) {
		return func(_ *world, p *provider, _ fault) { p.weather.deny(denial{request, code}, begins) }
	}
	return faultKind{share, 60 * time.Second, change(true), change(false)}
}

// faultKinds returns all kinds of faults, by name.
func faultKinds() map[string]faultKind {
	return map[string]faultKind{
		"provider refuses": {
			8, 60 * time.Second,
			atProvider(func(_ *provider, w *weather) { w.refuses++ }), atProvider(func(_ *provider, w *weather) { w.refuses-- }),
		},
		"provider hangs": {
			8, 60 * time.Second,
			atProvider(func(_ *provider, w *weather) { w.hangs++ }), atProvider(func(_ *provider, w *weather) { w.hangs-- }),
		},
		"provider loses answers": {
			4, 30 * time.Second,
			atProvider(func(_ *provider, w *weather) { w.answerLost = 40 }), atProvider(func(_ *provider, w *weather) { w.answerLost = 0 }),
		},
		"provider's watches lag": {
			4, 30 * time.Second,
			atProvider(func(_ *provider, w *weather) { w.lags++ }), atProvider(func(_ *provider, w *weather) { w.lags-- }),
		},
		"provider's webhook hangs": {
			8, 25 * time.Second,
			atProvider(func(p *provider, _ *weather) { p.frozen++ }), atProvider(func(p *provider, _ *weather) { p.frozen-- }),
		},
		quotaFull: {
			0, 90 * time.Second,
			atProvider(func(p *provider, _ *weather) { p.full++ }), atProvider(func(p *provider, _ *weather) { p.full-- }),
		},
		"provider lists nothing": {
			4, 60 * time.Second,
			atProvider(func(_ *provider, w *weather) { w.listless++ }), atProvider(func(_ *provider, w *weather) { w.listless-- }),
		},
		"provider rejects the identity": denied(4, "", http.StatusUnauthorized),
		"provider forbids":              denied(2, "", http.StatusForbidden),
		"provider throttles":            denied(3, "", http.StatusTooManyRequests),
		"provider is not ready":         denied(3, "GET "+readyz, http.StatusInternalServerError),
		"provider reads nothing":        denied(4, "", http.StatusInternalServerError),
		"provider lists slowly": {
			4, 60 * time.Second,
			// Like a namespace with 20,000 pods: 30 s for a full list, 0.75 s for a chunk of 500.
			atProvider(func(_ *provider, w *weather) { w.perItem, w.crowd = 1500*time.Microsecond, 20_000 }),
			atProvider(func(_ *provider, w *weather) { w.perItem, w.crowd = 0, 0 }),
		},
		"provider refuses pods": {
			3, 60 * time.Second,
			atProvider(func(p *provider, _ *weather) { p.strict++ }), atProvider(func(p *provider, _ *weather) { p.strict-- }),
		},
		"provider makes no pods": {
			3, 60 * time.Second,
			atProvider(func(p *provider, _ *weather) { p.stalled++ }), atProvider(func(p *provider, _ *weather) { p.stalled-- }),
		},
		"provider holds pods": {
			3, 60 * time.Second,
			atProvider(func(p *provider, _ *weather) { p.holds++ }), func(_ *world, p *provider, _ fault) {
				p.weather.change(func(*weather) { p.holds-- })
				p.letGo()
			},
		},
		"provider's node is drained": {6, 0, func(_ *world, p *provider, _ fault) { p.drain() }, nothing},
		"provider's node dies":       {6, 0, func(_ *world, p *provider, _ fault) { p.die() }, nothing},
		nodeDeleted: {4, 30 * time.Second, func(w *world, _ *provider, f fault) {
			if !w.waitHome() {
				return
			}
			w.cordonNode(w.weather.draw("cordon")%2 == 0)
			w.later(min(f.For/2, 8*time.Second), func() {
				_ = w.home.remove("admin", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: brokerNode}}, nil, nil)
			})
		}, func(w *world, _ *provider, _ fault) {
			if w.waitHome() {
				w.cordonNode(false)
			}
		}},
		"provider starts slowly": {
			4, 60 * time.Second,
			atProvider(func(p *provider, _ *weather) { p.slow = 30 * time.Second }),
			atProvider(func(p *provider, _ *weather) { p.slow = 0 }),
		},
		"home refuses": {3, 30 * time.Second, atHome(func(w *weather) { w.refuses++ }), atHome(func(w *weather) { w.refuses-- })},
		"home hangs":   {3, 30 * time.Second, atHome(func(w *weather) { w.hangs++ }), atHome(func(w *weather) { w.hangs-- })},
		"home loses answers": {
			6, 30 * time.Second, atHome(func(w *weather) { w.answerLost = 30 }), atHome(func(w *weather) { w.answerLost = 0 }),
		},
		"home's watches lag": {6, 30 * time.Second, atHome(func(w *weather) { w.lags++ }), atHome(func(w *weather) { w.lags-- })},
		"leader is killed":   {6, 0, leaderOf(func(p *process) { p.kill(errKilled) }), nothing},
		"leader is replaced": {4, 0, leaderOf(func(p *process) { p.terminate() }), nothing},
		"leader stops": {8, 40 * time.Second, leaderOf((*process).pause), func(w *world, _ *provider, _ fault) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, p := range w.brokers {
				p.resume()
			}
		}},
		"virtual kubelet is killed": {6, 0, kubeletOf(func(k *virtualKubelet, _ fault) { k.process.kill(errKilled) }), nothing},
		"virtual kubelet stops": {6, 50 * time.Second, kubeletOf(func(k *virtualKubelet, f fault) {
			k.process.pause()
			k.world.after(f.For, k.process.resume)
		}), nothing},
		"virtual kubelet lists again": {4, 10 * time.Second, kubeletOf(func(k *virtualKubelet, f fault) {
			k.local.drop(time.Now().Add(f.For))
			k.remote.drop(time.Now().Add(f.For))
		}), nothing},
		"drain": {
			10, 60 * time.Second,
			inSpec(func(s *v1alpha1.ProviderClusterSpec) { s.Drain = true }),
			inSpec(func(s *v1alpha1.ProviderClusterSpec) { s.Drain = false }),
		},
		"cordon": {
			3, 60 * time.Second,
			inSpec(func(s *v1alpha1.ProviderClusterSpec) { s.Cordoned = true }),
			inSpec(func(s *v1alpha1.ProviderClusterSpec) { s.Cordoned = false }),
		},
		"disable": {
			3, 60 * time.Second,
			inSpec(func(s *v1alpha1.ProviderClusterSpec) { s.Enabled = ptr.To(false) }),
			inSpec(func(s *v1alpha1.ProviderClusterSpec) { s.Enabled = nil }),
		},
		part: {
			6, 60 * time.Second,
			func(w *world, p *provider, f fault) {
				if w.waitHome() {
					w.part(f.of(p))
				}
			},
			func(w *world, p *provider, f fault) { w.rejoin(f.of(p)) },
		},
		namesake: {
			4, 60 * time.Second,
			func(w *world, p *provider, f fault) {
				if w.waitHome() {
					w.join(w.namesake(p, f))
				}
			},
			func(w *world, p *provider, f fault) {
				if w.waitHome() {
					w.part(w.namesake(p, f))
				}
			},
		},
	}
}

// quotaFull is the kind of fault in which a provider refuses all pods, because it has granted more than it has.
const quotaFull = "provider's quota is full"

// part is the kind of fault in which a VirtualNode is deleted.
const part = "part"

// nodeDeleted is the kind of fault in which the Node is deleted. In half of the histories it is cordoned before.
const nodeDeleted = "Node is deleted"

// namesake is the kind of fault in which the next provider has a VirtualNode of the same name until the fault ends.
const namesake = "namesake"

// namesake returns the slice of the next provider that has the same name as the slice of a fault.
func (w *world) namesake(p *provider, f fault) *slice {
	return w.providers[(slices.Index(w.providers, p)+1)%len(w.providers)].namesake(f.of(p))
}

// rejoin creates the VirtualNode of a slice again after Liqo has cleaned up.
func (w *world) rejoin(s *slice) {
	liqo := newProcess(w.ctx, "liqo")
	for w.waitHome() && !w.join(s) {
		if !liqo.sleep(w.ctx, 500*time.Millisecond) {
			return
		}
	}
}

// generate generates a history from a seed.
func generate(seed uint64) *history {
	random := rand.New(rand.NewPCG(seed, 1))
	h := &history{Seed: seed, Replicas: 1 + random.IntN(2), LateNamespace: random.IntN(8) == 0}
	for range 2 + random.IntN(2) {
		granted := []int{2 + random.IntN(6)}
		if random.IntN(4) == 0 {
			granted = append(granted, 1+random.IntN(4))
		}
		h.Providers = append(h.Providers, granted)
	}
	app := ""
	if random.IntN(2) == 0 {
		app = "a"
	}
	for i := range 3 + random.IntN(8) {
		pod := podSpec{
			Name: fmt.Sprintf("pod-%d", i), CPUs: 1 + random.IntN(2), At: upTo(random, 60*time.Second), Never: random.IntN(5) == 0,
			App: app,
		}
		if random.IntN(4) == 0 {
			pod.Seconds = 5 + random.IntN(40)
		}
		if random.IntN(4) == 0 {
			pod.Deleted, pod.Again, pod.Force = pod.At+upTo(random, 80*time.Second), random.IntN(2) == 0, random.IntN(2) == 0 && is(force)
		}
		if random.IntN(6) == 0 {
			pod.Once, pod.Job = is(once), random.IntN(2) == 0 && is(jobs)
		}
		h.Pods = append(h.Pods, pod)
	}
	// By other random numbers, so that the rest of a history does not change.
	if rand.New(rand.NewPCG(seed, 2)).IntN(4) == 0 {
		h.Pods[0].Alone, h.Pods[1].Alone = true, true
	}
	if rand.New(rand.NewPCG(seed, 3)).IntN(4) == 0 {
		h.Pods[1].Claim, h.Pods[2].Claim = true, true
	}
	kinds, names := faultKinds(), faultNames()
	if random.IntN(5) == 0 {
		names = append(judge.Calm(), "drain") // Drains are twice as likely.
	}
	for range 1 + random.IntN(8) {
		f := fault{
			Kind: names[random.IntN(len(names))], Provider: random.IntN(len(h.Providers)), Slice: random.IntN(2),
			At: 10*time.Second + upTo(random, 80*time.Second),
		}
		if longest := kinds[f.Kind].longest; longest > 0 {
			f.For = time.Second + upTo(random, longest)
		}
		h.Faults = append(h.Faults, f)
	}
	h.Scheduled, h.SlowAdmission = random.IntN(2) == 0, random.IntN(4) == 0 && is(slowAdmission)
	if random.IntN(10) == 0 {
		h.loseLeaderAmongPods(random)
	}
	if random.IntN(20) == 0 {
		h.refuseAll(random)
	}
	if random.IntN(20) == 0 {
		h.drainAmongCreations(random)
	}
	return h
}

// refuseAll makes all providers refuse pods for a while. Most pods are created in that time, so the broker retries them
// many times.
func (h *history) refuseAll(random *rand.Rand) {
	from := upTo(random, 20*time.Second)
	for i := range h.Providers {
		h.Faults = append(h.Faults, fault{Kind: quotaFull, Provider: i, At: from, For: 70*time.Second + upTo(random, 20*time.Second)})
	}
}

// loseLeaderAmongPods creates many pods shortly before the leader is killed or replaced, while watches lag: the next
// leader's cache does not show the latest assignments yet.
func (h *history) loseLeaderAmongPods(random *rand.Rand) {
	at := 15*time.Second + upTo(random, 45*time.Second)
	h.gatherPods(random, at)
	lost := "leader is killed"
	if random.IntN(2) == 0 {
		lost = "leader is replaced" // The next leader starts at once.
	}
	h.Faults = append(h.Faults,
		fault{Kind: "home's watches lag", At: at - 5*time.Second, For: 10*time.Second + upTo(random, 20*time.Second)},
		fault{Kind: lost, At: at},
	)
}

// gatherPods moves the creation of two thirds of the pods into the five seconds before a time.
func (h *history) gatherPods(random *rand.Rand, at time.Duration) {
	for i := range h.Pods {
		if pod := &h.Pods[i]; random.IntN(3) > 0 {
			before := pod.At
			if pod.At = at - upTo(random, 5*time.Second); pod.Deleted > 0 {
				pod.Deleted += pod.At - before
			}
		}
	}
}

// drainAmongCreations drains a provider while its webhook delays the creations of many ShadowPods, which may succeed
// later.
func (h *history) drainAmongCreations(random *rand.Rand) {
	at := 15*time.Second + upTo(random, 45*time.Second)
	h.gatherPods(random, at)
	drained := random.IntN(len(h.Providers))
	h.Faults = append(h.Faults,
		fault{
			Kind: "provider's webhook hangs", Provider: drained, At: at - 6*time.Second,
			For: 7*time.Second + upTo(random, 18*time.Second),
		},
		fault{Kind: "drain", Provider: drained, At: at, For: 5*time.Second + upTo(random, 40*time.Second)},
	)
}

// shorter returns all histories that lack one fault, pod, slice or other feature of this one.
func (h *history) shorter() (all []*history) {
	for i := range h.Faults {
		less := *h
		less.Faults = slices.Delete(slices.Clone(h.Faults), i, i+1)
		all = append(all, &less)
	}
	for i := range h.Pods {
		less := *h
		less.Pods = slices.Delete(slices.Clone(h.Pods), i, i+1)
		all = append(all, &less)
	}
	for i, granted := range h.Providers {
		if len(granted) > 1 {
			less := *h
			less.Providers = slices.Clone(h.Providers)
			less.Providers[i] = granted[:1]
			all = append(all, &less)
		}
	}
	if h.Replicas > 1 {
		less := *h
		less.Replicas = 1
		all = append(all, &less)
	}
	if h.Scheduled {
		less := *h
		less.Scheduled = false
		all = append(all, &less)
	}
	return all
}

func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(most/time.Millisecond))) * time.Millisecond
}

// faultNames lists each kind as often as its share.
func faultNames() (names []string) {
	kinds := faultKinds()
	for _, name := range sortedKeys(kinds) {
		for range kinds[name].share {
			if !is(name) {
				continue
			}
			names = append(names, name)
		}
	}
	return names
}

// outcome is the result of a history.
type outcome struct {
	history *history
	world   *world
	// began and ended are the times of the first and of the last event.
	began, ended time.Time
	// settled is when everything had settled after the last fault. unsettled lists the remaining problems; "" if there
	// are none.
	settled   time.Time
	unsettled string
	// writes counts the brokers' writes until then. late lists the writes of brokers and virtual kubelets long after
	// it.
	writes int
	late   string
	// untrue lists the pods whose reason for waiting is wrong; "" if there are none.
	untrue string
}

// run runs a history. It must be called in a synctest bubble.
func (h *history) run(ctx context.Context, scheme *runtime.Scheme) *outcome {
	ctx, cancel := context.WithCancel(ctx)
	w := newWorld(ctx, scheme, h)
	o := &outcome{history: h, world: w, began: time.Now()}
	for range h.Replicas {
		w.startBroker()
	}
	last := time.Duration(0)
	for i := range h.Pods {
		pod := &h.Pods[i]
		w.later(pod.At, func() { w.createPod(pod) })
		if pod.Deleted > 0 {
			w.later(pod.Deleted, func() { w.deletePod(pod) })
		}
		last = max(last, pod.At, pod.Deleted)
	}
	kinds := faultKinds()
	for _, f := range h.Faults {
		p := w.providers[f.Provider]
		w.after(f.At, func() {
			kinds[f.Kind].begin(w, p, f)
			timer := time.NewTimer(time.Until(o.began.Add(f.until())))
			defer timer.Stop()
			select {
			case <-timer.C:
				kinds[f.Kind].end(w, p, f)
			case <-ctx.Done():
			}
		})
		last = max(last, f.until())
	}
	time.Sleep(last + time.Second)
	o.settled, o.writes = time.Now(), h.interrupter.count()
	deadline := time.Now().Add(settleWithin)
	for ; time.Now().Before(deadline) && (time.Since(o.settled) < stays || o.untrue != ""); time.Sleep(time.Second) {
		record := o.record()
		if o.unsettled = record.Unsettled(); o.unsettled != "" {
			o.settled = time.Now()
			o.writes = h.interrupter.count()
		}
		o.untrue = record.Untrue()
	}
	if h.interrupter != nil && h.interrupter.at%4 == 0 && o.unsettled == "" {
		time.Sleep(time.Minute) // A changed reason may be written again after a minute, once.
		before := o.record()
		time.Sleep(quiet)
		o.late = o.record().WrittenSince(before)
	}
	o.ended = time.Now()
	cancel()
	w.running.Wait()
	return o
}

// recovery is how long everything took to settle after the last fault.
func (o *outcome) recovery() time.Duration {
	last := time.Duration(0)
	for _, f := range o.history.Faults {
		last = max(last, f.until())
	}
	return o.settled.Sub(o.began.Add(last))
}
