package judge

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// fewPods is up to how many pods the broker may query one by one at a provider. For more pods it has to list all at
	// once.
	fewPods = 10
	// writesOfObject is how many writes of an object, including conflicts, a broker may send within a minute. While
	// watches lag by 5 s, each change of a pod is attempted eight times: up to 66 writes were seen for a pod that was
	// refused again and again.
	writesOfObject = 120
	// triesOfPod is how often a broker may read a waiting pod within a minute, not counting the first second after a
	// change of the pod. The broker retries the pod every 30 to 45 s and at each relevant change, and may write the
	// reason: up to 53 times in histories.
	triesOfPod = 70
	// reworded is the minimum time between two writes of a waiting pod's reason if only the text has changed: a minute.
	reworded = time.Minute - time.Second
)

// judgeCosts checks which requests the brokers sent to the API servers, and how often.
func (r *Record) judgeCosts() (faults []string) {
	for _, p := range r.Providers {
		faults = append(faults, r.judgeQuestions(p)...)
		faults = append(faults, r.judgeProbes(p)...)
	}
	faults = append(faults, r.judgeWrites()...)
	pods := r.localPods()
	reads := group(r.Home.Requests, func(q *Request) (asked, bool) {
		return asked{q.By, q.Name}, q.Verb == FromCache && q.Kind == "Pod"
	})
	for _, uid := range sortedKeys(pods) {
		faults = append(faults, r.judgeWaits(pods[uid], reads)...)
		faults = append(faults, r.judgeRewording(pods[uid])...)
	}
	return faults
}

// asked identifies the object that a broker requested.
type asked struct {
	by   string
	name types.NamespacedName
}

// group returns the requests that have a key, by key and sorted by the time at which they began.
func group[K comparable](requests []Request, key func(*Request) (K, bool)) map[K][]*Request {
	groups := map[K][]*Request{}
	for i := range requests {
		if of, has := key(&requests[i]); has {
			groups[of] = append(groups[of], &requests[i])
		}
	}
	for _, sent := range groups {
		slices.SortStableFunc(sent, func(a, b *Request) int { return a.At.Compare(b.At) })
	}
	return groups
}

// most returns the largest number of requests that began within a period, and when that period ended.
func most(requests []*Request, within time.Duration) (n int, at time.Time) {
	first := 0
	for i, last := range requests {
		for requests[first].At.Before(last.At.Add(-within)) {
			first++
		}
		if i-first+1 > n {
			n, at = i-first+1, last.At
		}
	}
	return n, at
}

// judgeQuestions checks that the broker queries a provider with a few lists for all pods that leave it, and not for
// each pod. All lists of one check share one deadline.
func (r *Record) judgeQuestions(p *Provider) (faults []string) {
	type check struct {
		by, virtualNode, namespace string
		deadline                   time.Time
	}
	lists := group(p.Requests, func(q *Request) (check, bool) {
		return check{q.By, q.VirtualNode, q.Name.Namespace, q.Deadline}, q.Verb == List && q.Name.Name != ""
	})
	for of, sent := range lists {
		names := map[string]bool{}
		for _, q := range sent {
			names[q.Name.Name] = true
		}
		if len(names) > fewPods {
			faults = append(faults,
				fmt.Sprintf("%s asks %s for %d pods of %s one by one at %s", of.by, p.ID, len(names), of.virtualNode, r.at(sent[0].At)))
		}
	}
	slices.Sort(faults)
	return faults
}

// judgeProbes checks that a provider is probed once per interval: with each of its identities until one is answered,
// and once more whenever the broker discovers the provider again. That may happen twice per interval.
func (r *Record) judgeProbes(p *Provider) (faults []string) {
	probes := group(p.Requests, func(q *Request) (string, bool) { return q.By, q.Verb == Probe })
	for by, sent := range probes {
		if n, at := most(sent, r.Times.ProbeInterval-1); n > 2*(len(p.Slices)+1) {
			faults = append(faults, fmt.Sprintf("%s probes %s %d times within %s at %s", by, p.ID, n, r.Times.ProbeInterval, r.at(at)))
		}
	}
	return faults
}

// judgeWrites checks that the number of writes of an object stays bounded: writes that conflict are retried with
// back-off, and unchanged objects are not written.
func (r *Record) judgeWrites() (faults []string) {
	type object struct {
		asked
		kind string
	}
	writes := group(r.Home.Requests, func(q *Request) (object, bool) {
		written := slices.Contains([]string{"create", "update", "patch", "delete"}, q.Verb)
		return object{asked{q.By, q.Name}, q.Kind}, written && q.Kind != "Lease"
	})
	for of, sent := range writes {
		if n, at := most(sent, time.Minute); n > writesOfObject {
			faults = append(faults,
				fmt.Sprintf("%s sends %d writes of %s %s within a minute at %s", of.by, n, of.kind, of.name.Name, r.at(at)))
		}
	}
	return faults
}

// waits reports whether a pod is bound to the broker's Node, assigned to no provider, and not leaving one.
func (r *Record) waits(o client.Object) bool {
	pod, is := o.(*corev1.Pod)
	return is && pod.Spec.NodeName == r.Node && placeOf(pod) == (place{}) && !terminal(pod) && pod.DeletionTimestamp == nil
}

// hasEnded reports whether a pod is bound to the broker's Node and has ended.
func (r *Record) hasEnded(o client.Object) bool {
	pod, is := o.(*corev1.Pod)
	return is && pod.Spec.NodeName == r.Node && terminal(pod)
}

// judgeWaits checks that a pod that fits nowhere, or has ended, is retried rarely. Each attempt reads it from the
// cache.
func (r *Record) judgeWaits(record []Change, reads map[asked][]*Request) (faults []string) {
	name := client.ObjectKeyFromObject(record[0].Object())
	for of, read := range reads {
		if of.name != name {
			continue
		}
		var tries []*Request
		seen, waits := 0, false
		for _, q := range read {
			for ; seen < len(record) && record[seen].At.Before(q.At); seen++ {
				waits = r.waits(record[seen].After) || r.hasEnded(record[seen].After)
			}
			if waits && q.At.Sub(record[seen-1].At) >= time.Second {
				tries = append(tries, q)
			}
		}
		if n, at := most(tries, time.Minute); n > triesOfPod {
			faults = append(faults,
				fmt.Sprintf("%s tries %s, which waits or has ended, %d times within a minute at %s", of.by, name.Name, n, r.at(at)))
		}
	}
	return faults
}

// judgeRewording checks that the reason of a waiting pod is not rewritten at once if only its text has changed. A write
// whose answer was lost does not count: the broker does not know of it.
func (r *Record) judgeRewording(record []Change) (faults []string) {
	written := time.Time{}
	for _, c := range record {
		before, after := assignedCondition(c.Before), assignedCondition(c.After)
		if !r.waits(c.After) {
			written = time.Time{}
			continue
		}
		if after == nil || before != nil && before.Reason == after.Reason && before.Message == after.Message {
			continue
		}
		if before != nil && before.Reason == after.Reason && c.At.Before(written.Add(reworded)) {
			faults = append(faults, fmt.Sprintf("%s has its reason written again at %s by %s, %s after the last time: %s",
				c.After.GetName(), r.at(c.At), c.By, c.At.Sub(written).Round(time.Millisecond), after.Message))
		}
		written = c.At
		if slices.ContainsFunc(r.Faults, func(f Fault) bool {
			return f.Kind == "home loses answers" && c.At.After(f.From) && c.At.Before(f.Until)
		}) {
			written = time.Time{}
		}
	}
	return faults
}
