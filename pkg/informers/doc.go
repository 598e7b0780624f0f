// Package informers keeps data derived from objects up to date, by the informers of a cache.
package informers
