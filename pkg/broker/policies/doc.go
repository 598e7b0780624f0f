// Package policies reports on PlacementPolicies: whether each is valid, and to how many pods it applies.
package policies
