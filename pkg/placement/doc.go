// Package placement reads what the API says about placing a pod: the PlacementPolicy that counts for it, the selections
// of its consumer, its own annotations, and where it is. The scheduler decides with it, and explanations are made of it.
package placement
