package api

import "time"

// Placement is the place of a pod behind the broker's node.
type Placement struct {
	Namespace   string     `json:"namespace"`
	Pod         string     `json:"pod"`
	Consumer    string     `json:"consumer,omitempty" doc:"The id of the cluster that the pod comes from; absent for pods of the broker's own cluster"`
	Provider    string     `json:"provider,omitempty" doc:"The id of the provider; absent while the pod waits for one"`
	VirtualNode string     `json:"virtualNode,omitempty"`
	Since       *time.Time `json:"since,omitempty" doc:"When it was assigned"`
	Score       *int       `json:"score,omitempty" doc:"The score of the decision, 0 to 100"`
	Decision    string     `json:"decision,omitempty" doc:"The decision, in short"`
	MovingFrom  string     `json:"movingFrom,omitempty" doc:"The virtual node that it moves away from"`
	Phase       string     `json:"phase" enum:"Pending,Running,Succeeded,Failed,Unknown"`
	Ready       bool       `json:"ready"`
	Message     string     `json:"message,omitempty" doc:"Why the pod waits"`
	Created     time.Time  `json:"created"`
}

// PlacementList is a page of placements, by namespace and name.
type PlacementList struct {
	Items []Placement `json:"items"`
	Page
}

// Flow is the number of pods of one consumer at one provider.
type Flow struct {
	Consumer string `json:"consumer" doc:"The id of the consumer; empty for pods of the broker's own cluster"`
	Provider string `json:"provider" doc:"The id of the provider; empty for pods that wait"`
	Pods     int    `json:"pods"`
}

// FlowList has the flows by consumer and provider.
type FlowList struct {
	Items []Flow `json:"items"`
}

// Policy is a PlacementPolicy.
type Policy struct {
	Name           string      `json:"name"`
	Priority       int32       `json:"priority"`
	Consumers      []string    `json:"consumers,omitempty" doc:"The consumers whose pods it is for; absent for all"`
	Providers      []string    `json:"providers,omitempty" doc:"The providers that may be used; absent for all"`
	Filter         string      `json:"filter,omitempty" doc:"CEL"`
	Score          string      `json:"score,omitempty" doc:"CEL"`
	Weights        []Weight    `json:"weights,omitempty"`
	Selection      *Selection  `json:"selection,omitempty" doc:"Set if it is the selection of a consumer"`
	Failover       string      `json:"failover,omitempty" enum:"Move,Never"`
	MaxUnavailable string      `json:"maxUnavailable,omitempty" doc:"How many replicas of a pod may be unavailable because of a drain: a number or a percentage; absent for 25%"`
	Pods           int32       `json:"pods" doc:"The number of assigned pods that it is for"`
	Conditions     []Condition `json:"conditions,omitempty"`
}

// Weight is how much one score counts.
type Weight struct {
	Name   string `json:"name"`
	Weight int32  `json:"weight"`
}

// Selection has the providers that a consumer selected.
type Selection struct {
	Mode      string   `json:"mode" enum:"AllBut,Only"`
	Providers []string `json:"providers"`
}

// PolicyList is a page of policies, by name.
type PolicyList struct {
	Items []Policy `json:"items"`
	Page
}
