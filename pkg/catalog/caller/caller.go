// Package caller identifies the callers of the catalog, and decides which consumer they act for and what they may do.
// Tokens and client certificates are the cluster's (TokenReview, its CA), rights are RBAC's (SubjectAccessReview).
package caller

import (
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve"
)

// Caller makes a request. The zero Caller is anonymous.
type Caller struct {
	// User is the Kubernetes user; nil for an anonymous caller.
	User user.Info
	// ByToken means that the caller sent a bearer token, which browsers do not send by themselves.
	ByToken bool
	// Certificate is the reason why a client certificate was not accepted; "" if none was rejected.
	Certificate string

	// organizations are the organisations of the client certificate that identified the caller.
	organizations []string
}

// Known reports whether the caller is identified.
func (c *Caller) Known() bool { return c.User != nil }

// Name is the name of the user; "" for an anonymous caller.
func (c *Caller) Name() string {
	if c.User == nil {
		return ""
	}
	return c.User.GetName()
}

// Host is the source of a request that allowances are counted by: its IPv4 address, or its IPv6 network, because one
// host has all addresses in it. Headers that proxies add are ignored.
func Host(r *http.Request) string { return httpserve.HostOf(r.RemoteAddr) }
