package api

// Me is the caller, and its permissions.
type Me struct {
	User string `json:"user,omitempty" doc:"The Kubernetes user; absent for an anonymous caller"`
	// Consumer is absent for an operator.
	Consumer string `json:"consumer,omitempty" doc:"The id of the consumer that the caller acts for"`
	Can      Can    `json:"can"`
	Services Served `json:"services"`
}

// Can has the permissions of a caller.
type Can struct {
	Placements bool `json:"placements" doc:"See placements (a consumer: of its own pods)"`
	Policies   bool `json:"policies" doc:"See policies (a consumer: those for its pods)"`
	Explain    bool `json:"explain" doc:"Have pods explained"`
	Select     bool `json:"select" doc:"Select providers on behalf of the consumer"`
	Enable     bool `json:"enable" doc:"Enable and disable providers for all consumers"`
}

// Served is the version and the node of the catalog.
type Served struct {
	Version string `json:"version"`
	Node    string `json:"node" doc:"The broker's node"`
}
