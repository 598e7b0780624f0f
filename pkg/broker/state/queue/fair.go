package queue

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/fairshare"
)

// Fairly returns the pods in the order in which they are tried: always the one of the consumer whose share is smallest
// with the pods before it, and of one consumer the one that has waited longest. It adds the pods to the shares.
func Fairly(pods []*Pod, shares *fairshare.Usage) []*Pod {
	ordered := make([]*Pod, 0, len(pods))
	inTurn(pods, shares, func(p *Pod) bool {
		ordered = append(ordered, p)
		return true
	})
	return ordered
}

// inTurn visits the pods in the order of Fairly. A pod counts in the share of its consumer if visit returns true.
func inTurn(pods []*Pod, shares *fairshare.Usage, visit func(*Pod) (takes bool)) {
	of := map[string]*line{}
	lines := lines{}
	for _, p := range pods {
		if of[p.Consumer] == nil {
			of[p.Consumer] = &line{consumer: p.Consumer, share: shares.Share(p.Consumer).Value}
			lines = append(lines, of[p.Consumer])
		}
		of[p.Consumer].pods = append(of[p.Consumer].pods, p)
	}
	for _, l := range lines {
		slices.SortFunc(l.pods, Compare)
	}
	heap.Init(&lines)
	for len(lines) > 0 {
		l := lines[0]
		p := l.pods[0]
		l.pods = l.pods[1:]
		if visit(p) {
			for _, wanted := range p.demand {
				shares.Take(l.consumer, corev1.ResourceName(wanted.Name), wanted.Amount)
			}
			l.share = shares.Share(l.consumer).Value
		}
		if len(l.pods) == 0 {
			heap.Pop(&lines)
		} else {
			heap.Fix(&lines, 0)
		}
	}
}

// line has the pods of one consumer that are left, longest waiting first.
type line struct {
	consumer string
	share    float64
	pods     []*Pod
}

// lines is a heap of the consumers, the smallest share first.
type lines []*line

// Len implements heap.Interface.
func (l lines) Len() int { return len(l) }

// Less implements heap.Interface. Of equal shares the pod goes first that has waited longest.
func (l lines) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(l[i].share, l[k].share), Compare(l[i].pods[0], l[k].pods[0]),
		strings.Compare(l[i].consumer, l[k].consumer)) < 0
}

// Swap implements heap.Interface.
func (l lines) Swap(i, k int) { l[i], l[k] = l[k], l[i] }

// Push implements heap.Interface.
func (l *lines) Push(added any) { *l = append(*l, added.(*line)) } //nolint:forcetypeassert // A heap of lines.

// Pop implements heap.Interface.
func (l *lines) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}
