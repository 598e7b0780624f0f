package scheduler

// Filter names what speaks against a provider or one of its slices. The order is that in which filters are asked: a
// greater one is further on the way to fitting.
type Filter uint8

// The filters of a provider cluster, of a slice, and of the criteria, in this order.
const (
	Passed Filter = iota
	Disabled
	NotReady
	Recovering
	Cordoned
	Draining
	Origin
	NotOffloaded
	NotSelected

	// NothingGranted says that the provider has no slice at all.
	NothingGranted
	// Left says that the pod is to be moved away from there.
	Left
	VolumesElsewhere
	RefusedLately
	Insufficient
	TooManyPods

	PolicyFilter
	PodFilter
	// Failed says that an expression, of a filter or of a score, failed while it ran.
	Failed
)

// String returns the filter as a reason; that of Insufficient lacks the resource.
func (f Filter) String() string {
	return [...]string{
		Passed:           "fits",
		Disabled:         "disabled",
		NotReady:         "not ready",
		Recovering:       "recovering",
		Cordoned:         "cordoned",
		Draining:         "draining",
		Origin:           "is the pod's origin",
		NotOffloaded:     "namespace not offloaded",
		NotSelected:      "not selected by the consumer",
		NothingGranted:   "nothing granted",
		Left:             "moved away from",
		VolumesElsewhere: "volumes elsewhere",
		RefusedLately:    "refused lately",
		Insufficient:     "insufficient",
		TooManyPods:      "too many pods",
		PolicyFilter:     "policy filter",
		PodFilter:        "pod filter",
		Failed:           "filter error",
	}[f]
}
