package api

// Me is who asks, and what the caller may do: what the dashboard shows is made of it.
type Me struct {
	User string `json:"user,omitempty" doc:"The name that Kubernetes knows the caller by; absent for a stranger"`
	// Consumer is on whose behalf the caller asks; absent for an operator.
	Consumer string `json:"consumer,omitempty" doc:"The id of the consumer on whose behalf the caller acts"`
	Can      Can    `json:"can"`
	Services Served `json:"services"`
}

// Can is what a caller may do.
type Can struct {
	Placements bool `json:"placements" doc:"See where pods are (a consumer: its own)"`
	Policies   bool `json:"policies" doc:"See policies (a consumer: those for it)"`
	Explain    bool `json:"explain" doc:"Ask why a pod is where it is"`
	Select     bool `json:"select" doc:"Select providers on behalf of the consumer"`
	Enable     bool `json:"enable" doc:"Enable and disable providers for everybody"`
}

// Served is what the catalog runs as.
type Served struct {
	Version string `json:"version"`
	Node    string `json:"node" doc:"The broker's node"`
}
