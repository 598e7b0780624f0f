package api

// The stream GET /api/v1/events has server-sent events with these names. Every one that a caller may see carries the
// whole new object, so that nothing has to be asked for again; changes of one object in quick succession are joined.
const (
	// EventSync begins every stream: what was read before may be out of date, read it again.
	EventSync = "sync"
	// EventProvider carries a Provider.
	EventProvider = "provider"
	// EventProviderGone carries a Gone.
	EventProviderGone = "provider-gone"
	// EventPlacement carries a Placement; only for callers who may see it.
	EventPlacement = "placement"
	// EventPlacementGone carries a Gone; only for callers who might see the placement.
	EventPlacementGone = "placement-gone"
)

// Sync begins a stream.
type Sync struct {
	Version string `json:"version" doc:"The version of the catalog: a new one may have a new dashboard"`
}

// Gone names what is no longer there.
type Gone struct {
	ID        string `json:"id,omitempty" doc:"Of a provider"`
	Namespace string `json:"namespace,omitempty" doc:"Of a pod"`
	Pod       string `json:"pod,omitempty"`
}
