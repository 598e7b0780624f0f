// Package node owns the broker's Node: its object, its lease, and its status, which combines all providers.
package node
