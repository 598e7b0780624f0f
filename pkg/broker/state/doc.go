// Package state keeps the broker's assumptions between two reads of the API: where every pod is assigned or about to
// be, which decisions the caches do not show yet, which provider clusters can be reached, and their KPIs.
//
// A Federation records observations and answers questions. All methods are atomic except Assume and ReserveElsewhere,
// which evaluate expressions on a copy, without the lock, and confirm their choice afterwards against the observations
// made meanwhile. Like kube-scheduler's cache, it assumes an assignment before it is written (Assume), until the cache
// of the API shows it (ObserveAssigned) or it was not written (Forget). The package makes no request, starts no
// goroutine, logs nothing and calls nothing back; it reads no clock but the one that it is given. The same observations
// at the same times give the same answers.
package state
