package verdict

// Filter is a reason why a provider, or one of its slices, does not take a pod. Of the slices of a provider, the one
// with the greatest filter is the closest to taking the pod.
type Filter uint8

// The filters of a provider cluster, of a slice, and of the expressions. The slice filters are in the order of
// evaluation.
const (
	Passed Filter = iota
	Disabled
	Recovering
	Cordoned
	Draining
	Origin
	NotOffloaded
	NotSelected
	NotNamed
	// NodeAffinity, TopologySpread and PodAffinity are the pod's own constraints (package constraints).
	NodeAffinity
	TopologySpread
	PodAffinity
	// VolumeElsewhere: a volume of the pod is at another provider. NoStorageClass: the provider has no class for a volume
	// that is not at a provider yet.
	VolumeElsewhere
	NoStorageClass
	// TooCostly: an hour of the pod costs more than its policy allows, or the price is unknown.
	TooCostly
	// NothingGranted: the provider has no slice.
	NothingGranted

	// ServesAnotherNode: the virtual kubelet of the VirtualNode is started for another Node than the broker's.
	ServesAnotherNode
	// NameNotUnique: VirtualNodes in several namespaces have this name.
	NameNotUnique
	// Terminating: the VirtualNode is being deleted.
	Terminating
	// StartsNothing: pods that were assigned to it did not start, one after another.
	StartsNothing
	// NotReady is also a filter of a provider cluster.
	NotReady
	RefusedLately
	Insufficient
	TooManyPods
	// Reserved: the free capacity is reserved for a pod that has waited for long.
	Reserved

	PolicyFilter
	PodFilter
	// Failed: an expression, of a filter or of a score, failed.
	Failed
)

var filterNames = [...]string{
	Passed:            "fits",
	Disabled:          "disabled",
	Recovering:        "recovering",
	Cordoned:          "cordoned",
	Draining:          "draining",
	Origin:            "is the pod's origin",
	NotOffloaded:      "namespace not offloaded",
	NotSelected:       "not selected by its consumer",
	NotNamed:          "not named by the policy",
	NodeAffinity:      "node affinity",
	TopologySpread:    "topology spread",
	PodAffinity:       "pod affinity",
	VolumeElsewhere:   "volume is at another provider",
	NoStorageClass:    "no storage class",
	TooCostly:         "too costly",
	NothingGranted:    "nothing granted",
	ServesAnotherNode: "virtual kubelet serves another node",
	NameNotUnique:     "VirtualNode name not unique",
	Terminating:       "VirtualNode terminating",
	StartsNothing:     "starts no pods",
	NotReady:          "not ready",
	RefusedLately:     "in back-off",
	Insufficient:      "insufficient",
	TooManyPods:       "too many pods",
	Reserved:          "reserved for a larger pod",
	PolicyFilter:      "policy filter",
	PodFilter:         "pod filter",
	Failed:            "filter error",
}

// String returns the filter as a reason; for Insufficient it lacks the resource.
func (f Filter) String() string { return filterNames[f] }

// ParseSliceFilter is the inverse of String for the filters that a Slice can have. "" is Passed. It returns false for
// every other text.
func ParseSliceFilter(reason string) (Filter, bool) {
	if reason == "" {
		return Passed, true
	}
	for f := ServesAnotherNode; f <= NotReady; f++ {
		if filterNames[f] == reason {
			return f, true
		}
	}
	return Passed, false
}
