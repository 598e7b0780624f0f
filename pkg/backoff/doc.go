// Package backoff keeps, on a pod, where it was assigned in vain: its provider refused it, or did not start it in time. The
// broker writes that, so that a next leader knows it, and decides by it; explanations read it.
package backoff
