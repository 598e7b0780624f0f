// Package values has the CEL values that expressions read: objects with fields, maps of texts and maps of amounts. They
// are made from Go values when they are read, and not before.
package values
