// Package view is a read model of the federation: what the catalog shows, and what explanations are decided by. The
// informers of one cache keep it up to date. No question to it is a request to an API server.
//
// Objects become shapes of the catalog's API when they change, once, and are stored in sorted indexes. Stored shapes are
// never changed, only replaced. Answers share memory with them: callers may set fields of an answer, and treat what
// these refer to as read-only.
//
// Scope decides what a caller may see, for lists and streams alike. The caller of this package decides which Scope a
// caller has.
package view
