package scheduler

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/kpi"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

// Provider is a cluster that shares its resources, in the state that the broker knows.
type Provider struct {
	// ID is its cluster id.
	ID string
	// Labels are advertised by the provider; Attributes are set by the broker's administrator (price, region).
	Labels, Attributes map[string]string
	// Prices are empty if they are unknown.
	Prices price.Lists

	// Enabled, Cordoned and Draining are set by the administrator.
	Enabled, Cordoned, Draining bool
	// Ready: it answers. Recovering: it was unreachable, and still runs pods that were moved away.
	Ready, Recovering bool
	// NotReady is the reason why it is not Ready, for people; "" is none.
	NotReady string

	// Namespaces are the local namespaces that are offloaded there; nil is none.
	Namespaces sets.Set[string]
	// Missing has the namespaces that are to be offloaded there and cannot be, each with the reason; nil is none.
	Missing map[string]string
	// StorageClasses are those that it offers for volumes; nil is none.
	StorageClasses sets.Set[string]
	KPIs           kpi.Values
	Slices         []Slice
}

// Schedulable reports whether the administrator allows new pods at the provider.
func (p *Provider) Schedulable() bool { return p.Enabled && !p.Cordoned && !p.Draining }

// Slice is one part of the provider's grant: a VirtualNode, with its own quota.
type Slice struct {
	// VirtualNode is its name. Slices of two providers may have one name: a Place is unique.
	VirtualNode string
	// Granted is the amount that the provider granted. A resource that it does not name is 0, but the number of pods is
	// then unlimited.
	Granted resources.Amounts
	// Filter is why it takes no pod, whatever the pod is: verdict.ServesAnotherNode, NameNotUnique, Terminating or
	// NotReady. A slice that takes pods has Passed.
	Filter verdict.Filter
	// Closed and Reserved are nil for most: Claim changes them, too.
	Closed   *Closure
	Reserved *Reservation
}

// Place is a VirtualNode of a provider: the zero Place is none.
type Place struct {
	// Provider is the id of the cluster, VirtualNode the name of the slice there.
	Provider, VirtualNode string
}

// Use tells apart the amounts that are counted for one UID.
type Use string

// The uses of amounts beside a pod's own requests. None of them counts as a pod of an application.
const (
	// ReservedElsewhere amounts are reserved for a pod that is still counted at another place.
	ReservedElsewhere Use = "reserved elsewhere"
	// Withheld amounts are those that a provider turned out to lack when it refused the pod.
	Withheld Use = "withheld"
	// KeptForSuccessor amounts are part of an account, for the next pod of a name, without a UID.
	KeptForSuccessor Use = "kept for a successor"
)

// Holder is the key of an assignment.
type Holder struct {
	UID types.UID
	Use Use
	// At is the Place of Withheld amounts: several providers may have refused one pod. Name is the name of
	// KeptForSuccessor amounts. Both are zero for the other uses.
	At   Place
	Name types.NamespacedName
}

// HolderOf returns the Holder of a pod's own requests.
func HolderOf(uid types.UID) Holder { return Holder{UID: uid} }

// Assignment is one pod on one slice, which is its Place.
type Assignment struct {
	Place
	UID types.UID
	// Use is zero for the pod's own requests. Name is the name of KeptForSuccessor amounts.
	Use  Use
	Name types.NamespacedName
	// Account is the account that counts the pod. It is zero if the amount is not a pod's, or if the pod is already
	// counted elsewhere.
	Account Account
	// App is the pod's application, as in Pod.
	App string
	// Peer is the pod as the constraints of others see it; nil if the amounts are not a running pod's.
	Peer *constraints.Peer
	// Requests are the amounts that it uses. Without "pods" they use capacity, but count as no pod.
	Requests resources.Amounts
	// Ended means that the pod has ended: only the slice's quota still counts it.
	Ended bool
}

// Holder returns the key of the assignment: of two with the same key the later one replaces the other.
func (a *Assignment) Holder() Holder {
	h := Holder{UID: a.UID, Use: a.Use, Name: a.Name}
	if a.Use == Withheld {
		h.At = a.Place
	}
	return h
}
