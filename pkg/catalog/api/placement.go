package api

import "time"

// Placement is where a pod behind the broker's node is.
type Placement struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Consumer  string `json:"consumer,omitempty" doc:"The id of the cluster that the pod comes from; absent if it is the broker's own"`
	// Provider is absent while the pod waits for one.
	Provider    string     `json:"provider,omitempty"`
	VirtualNode string     `json:"virtualNode,omitempty"`
	Since       *time.Time `json:"since,omitempty" doc:"When it was assigned there"`
	Score       *int       `json:"score,omitempty" doc:"Of the decision"`
	Decision    string     `json:"decision,omitempty" doc:"Why it is there, in short"`
	MovingFrom  string     `json:"movingFrom,omitempty" doc:"The virtual node that it is leaving"`
	Phase       string     `json:"phase" enum:"Pending,Running,Succeeded,Failed,Unknown"`
	Ready       bool       `json:"ready"`
	// Message says why the pod waits.
	Message string    `json:"message,omitempty"`
	Created time.Time `json:"created"`
}

// PlacementList is a page of placements, by namespace and name.
type PlacementList struct {
	Items []Placement `json:"items"`
	Page
}

// Flow is how many pods go from one consumer to one provider.
type Flow struct {
	Consumer string `json:"consumer" doc:"The id of the consumer; empty for the broker's own cluster"`
	Provider string `json:"provider" doc:"The id of the provider; empty for pods that wait"`
	Pods     int    `json:"pods"`
}

// FlowList is the picture of the federation, by consumer and provider.
type FlowList struct {
	Items []Flow `json:"items"`
}

// Policy is a PlacementPolicy, in short.
type Policy struct {
	Name       string      `json:"name"`
	Priority   int32       `json:"priority"`
	Consumers  []string    `json:"consumers,omitempty" doc:"Whose pods it is for; absent for all"`
	Providers  []string    `json:"providers,omitempty" doc:"The providers that may be used; absent for all"`
	Filter     string      `json:"filter,omitempty" doc:"CEL"`
	Score      string      `json:"score,omitempty" doc:"CEL"`
	Weights    []Weight    `json:"weights,omitempty"`
	Selection  *Selection  `json:"selection,omitempty" doc:"If it is the choice that a consumer made"`
	Failover   string      `json:"failover,omitempty" enum:"Move,Never"`
	Pods       int32       `json:"pods" doc:"How many assigned pods it is for"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Weight is how much one score counts.
type Weight struct {
	Name   string `json:"name"`
	Weight int32  `json:"weight"`
}

// Selection is a choice among the providers.
type Selection struct {
	Mode      string   `json:"mode" enum:"AllBut,Only"`
	Providers []string `json:"providers"`
}

// PolicyList is a page of policies, by name.
type PolicyList struct {
	Items []Policy `json:"items"`
	Page
}
