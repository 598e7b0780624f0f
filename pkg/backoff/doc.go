// Package backoff records on a pod its failed assignments: its provider rejected it, or did not start it in time. The
// broker writes the record, so that a next leader knows it, and uses it in decisions; explanations read it.
package backoff
