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
	// fewPods is of how many pods a provider is asked for one by one; for more of them all are listed at once.
	fewPods = 10
	// writesOfObject is how many writes of an object, also those that met a conflict, a broker may send within a minute. While
	// watches lag by 5 s, each change of a pod is tried eight times: up to 66 writes were seen when it was refused again and again.
	writesOfObject = 120
	// triesOfPod is how often a broker may read a pod that waits within a minute, but for the second after a change of the pod. It tries
	// the pod every 30 to 45 s, and when something changes that concerns it, and may write why it waits: in histories up to 53 times.
	triesOfPod = 70
	// reworded is how soon the reason of a pod that waits is written again if only its text has changed: after a minute.
	reworded = time.Minute - time.Second
)

// judgeCosts checks what the brokers asked of the API servers, and how often.
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

// asked is what a broker asked about.
type asked struct {
	by   string
	name types.NamespacedName
}

// group are those requests that have a key, by it and by the time of their beginnings.
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

// most returns how many of the requests began within a time, and when that ended.
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

// judgeQuestions checks that a provider is asked with a few lists for all pods that leave it, and not for each by itself. The lists of
// one check have one deadline.
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
			faults = append(faults, fmt.Sprintf("%s asks %s for %d pods of %s one by one at %s", of.by, p.ID, len(names), of.virtualNode, r.at(sent[0].At)))
		}
	}
	slices.Sort(faults)
	return faults
}

// judgeProbes checks that a provider is probed once an interval, with each of its identities until one is answered, and once more
// each time that it is known anew, which may be twice.
func (r *Record) judgeProbes(p *Provider) (faults []string) {
	probes := group(p.Requests, func(q *Request) (string, bool) { return q.By, q.Verb == Probe })
	for by, sent := range probes {
		if n, at := most(sent, r.Times.ProbeInterval-1); n > 2*(len(p.Slices)+1) {
			faults = append(faults, fmt.Sprintf("%s probes %s %d times within %s at %s", by, p.ID, n, r.Times.ProbeInterval, r.at(at)))
		}
	}
	return faults
}

// judgeWrites checks that writes that meet a conflict are tried again less and less, and that what has not changed is not written.
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
			faults = append(faults, fmt.Sprintf("%s sends %d writes of %s %s within a minute at %s", of.by, n, of.kind, of.name.Name, r.at(at)))
		}
	}
	return faults
}

// waits reports whether a pod is the broker's, and assigned to no provider nor leaving one.
func (r *Record) waits(o client.Object) bool {
	pod, is := o.(*corev1.Pod)
	return is && pod.Spec.NodeName == r.Node && placeOf(pod) == (place{}) && !terminal(pod) && pod.DeletionTimestamp == nil
}

// hasEnded reports whether a pod is the broker's and has ended.
func (r *Record) hasEnded(o client.Object) bool {
	pod, is := o.(*corev1.Pod)
	return is && pod.Spec.NodeName == r.Node && terminal(pod)
}

// judgeWaits checks that a pod that fits nowhere, or has ended, is tried now and then only. Each try reads it from the cache.
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
			faults = append(faults, fmt.Sprintf("%s tries %s, which waits or has ended, %d times within a minute at %s", of.by, name.Name, n, r.at(at)))
		}
	}
	return faults
}

// judgeRewording checks that a pod that waits does not have its reason written again at once if only the text is another. A broker
// does not know of a write whose answer is lost.
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
			faults = append(faults, fmt.Sprintf("%s has its reason written again at %s by %s, %s after the last time: %s", c.After.GetName(), r.at(c.At),
				c.By, c.At.Sub(written).Round(time.Millisecond), after.Message))
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
