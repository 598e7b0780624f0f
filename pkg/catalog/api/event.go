package api

// The names of the server-sent events of the stream GET /api/v1/events. An event has the whole changed object. Changes
// of one object in quick succession are joined.
const (
	// EventSync begins every stream, and may come again. Everything read before may be out of date.
	EventSync = "sync"
	// EventProvider has a Provider.
	EventProvider = "provider"
	// EventProviderGone has a Gone.
	EventProviderGone = "provider-gone"
	// EventPlacement has a Placement that the caller may see.
	EventPlacement = "placement"
	// EventPlacementGone has a Gone, of a placement that the caller was allowed to see until now.
	EventPlacementGone = "placement-gone"
)

// Sync is the data of EventSync.
type Sync struct {
	Version string `json:"version" doc:"The version of the catalog"`
}

// Gone names an object that was removed, or that the caller may no longer see.
type Gone struct {
	ID        string `json:"id,omitempty" doc:"The id of a provider"`
	Namespace string `json:"namespace,omitempty" doc:"The namespace of a pod"`
	Pod       string `json:"pod,omitempty" doc:"The name of a pod"`
}
