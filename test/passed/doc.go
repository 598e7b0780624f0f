// Package passed remembers suites that passed, by a hash of all that their outcome depends on, so that a suite which
// proves something of others, and not of this repository, need not run each time.
package passed
