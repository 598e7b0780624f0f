// Package federation is what the catalog knows of the federation: a read model that is kept up to date by the informers
// of one cache, and asked by the handlers of the HTTP API. No question goes to an API server.
//
// Objects become shapes of package api once, when they change, and stand in sorted indexes; a page is found by descending
// a tree, whoever asks and whatever it is filtered by. What stands in the indexes is never changed, only replaced, and
// what is handed out is a deep copy: callers may do with it what they like.
//
// Who may see what is decided here, by Scope, in one place for lists and streams alike; who has which Scope is decided by
// the caller of this package.
package federation
