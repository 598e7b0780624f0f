package ipam

import "k8s.io/client-go/util/workqueue"

// addressQueue is a queue of addresses. It does not use client-go's typed queue, which v0.28 does not have: the virtual
// kubelet of Liqo v0.x is built with that version.
type addressQueue struct{ workqueue.DelayingInterface }

func newAddressQueue() *addressQueue {
	return &addressQueue{workqueue.NewDelayingQueue()} //nolint:staticcheck // See addressQueue.
}

func (q *addressQueue) next() (ip string, closed bool) {
	item, closed := q.Get()
	ip, _ = item.(string)
	return ip, closed
}
