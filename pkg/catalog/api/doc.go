// Package api has the shapes of the catalog's HTTP API /api/v1, as JSON. Amounts of resources are Kubernetes quantities,
// times are RFC 3339 in UTC. What is absent is not known.
package api
