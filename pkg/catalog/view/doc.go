// Package view is a read model of the federation: the data that the catalog shows and that explanations are computed
// from. The informers of one cache keep it up to date. No query causes a request to an API server.
//
// Objects are converted to the catalog's API types once, when they change, and are stored in sorted indexes. Stored
// values are never changed, only replaced. Answers share memory with them: callers may set fields of an answer, and
// treat the values that these refer to as read-only.
//
// Scope limits the data that a caller may see, for lists and streams alike. The package's user decides on the Scope of
// a caller.
package view
