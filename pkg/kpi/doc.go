// Package kpi measures provider clusters: uptime over windows, latency, the time pods take to start, failures. It is
// pure: the times are given to it, and it reads and writes only the API's status, so that what it knows survives a
// restart of the broker.
package kpi
