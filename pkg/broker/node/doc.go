// Package node owns the broker's Node: its object, its lease, and what its status shows of the providers together.
package node
