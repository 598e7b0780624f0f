// Package grants reads the resources that this cluster granted each consumer. The broker assigns no more new pods of
// the consumer than that.
package grants
