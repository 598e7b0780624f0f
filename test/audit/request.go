package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Request is a request that an API server has answered.
type Request struct {
	// User is the caller, as RBAC names it.
	User string
	// Namespace is "" for cluster-wide resources and for requests across all namespaces.
	Namespace string
	// Rule is the smallest rule that allows the request. It has no resources for a path such as /healthz.
	Rule rbacv1.PolicyRule
	// Forbidden is true if no role allowed the request. Rejections by admission policies do not count.
	Forbidden bool
}

func (r *Request) String() string {
	return fmt.Sprintf("%s in namespace %q by %s", describe(&r.Rule), r.Namespace, r.User)
}

// Read reads a log of audit.k8s.io/v1 Events in JSON. It returns identical requests once. The API server may be writing
// the last line at this moment: an incomplete line is ignored.
func Read(path string) ([]Request, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var requests []Request
	seen := map[string]bool{}
	for decoder := json.NewDecoder(f); ; {
		var event auditv1.Event
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return requests, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r := requestOf(&event)
		if key := fmt.Sprint(r.String(), r.Forbidden); !seen[key] {
			seen[key] = true
			requests = append(requests, r)
		}
	}
}

func requestOf(e *auditv1.Event) Request {
	// The authorizers' decision: https://kubernetes.io/docs/reference/labels-annotations-taints/audit-annotations/
	r := Request{User: e.User.Username, Forbidden: e.Annotations["authorization.k8s.io/decision"] == "forbid"}
	r.Rule.Verbs = []string{e.Verb}
	ref := e.ObjectRef
	if ref == nil {
		r.Rule.NonResourceURLs = []string{e.RequestURI}
		return r
	}
	r.Namespace = ref.Namespace
	resource := ref.Resource
	if ref.Subresource != "" {
		resource += "/" + ref.Subresource
	}
	r.Rule.APIGroups, r.Rule.Resources = []string{ref.APIGroup}, []string{resource}
	if ref.Name != "" {
		r.Rule.ResourceNames = []string{ref.Name}
	}
	return r
}

// Forbidden returns the requests that no role allowed.
func Forbidden(requests []Request) []string {
	var all []string
	for i := range requests {
		if requests[i].Forbidden {
			all = append(all, requests[i].String())
		}
	}
	return all
}
