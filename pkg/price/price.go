// Package price computes the cost of pods at providers. Prices are for an hour of one unit of a resource, and change at
// given times.
package price

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

// Attribute is the attribute of a provider that has the price of a CPU and hour, without a currency. It applies if the
// provider has no price lists.
const Attribute = "price"

// List has the prices that apply from a time, until the next one's.
type List struct {
	// From is zero for prices that always applied.
	From time.Time
	// Currency is a code of ISO 4217; "" is the one that all providers share.
	Currency string
	// PerHour is the price of an hour: of cpu per core, of memory, ephemeral storage and huge pages per GiB, of any other
	// resource, such as pods, per unit.
	PerHour map[corev1.ResourceName]float64
}

// Lists are the prices of a provider, by From.
type Lists []List

// Amount is an amount of money.
type Amount struct {
	Value    float64
	Currency string
}

// String returns the amount with at most six decimals: "0.21 EUR".
func (a Amount) String() string {
	return strings.TrimSpace(Format(a.Value) + " " + a.Currency)
}

// Format returns an amount without a currency.
func Format(value float64) string {
	return strconv.FormatFloat(math.Round(value*1e6)/1e6, 'f', -1, 64)
}

// Of returns the prices of a provider: its price lists, else its attribute price. If an administrator accepts the prices
// that the provider advertises, the labels of its VirtualNodes replace both.
func Of(spec *v1alpha1.ProviderClusterSpec, labels map[string]string) Lists {
	if spec.AcceptAdvertisedPrices {
		if list, ok := advertised(labels); ok {
			return Lists{list}
		}
	}
	var lists Lists
	for i := range spec.Prices {
		of := &spec.Prices[i]
		list := List{Currency: of.Currency, PerHour: make(map[corev1.ResourceName]float64, len(of.PerHour))}
		if of.From != nil {
			list.From = of.From.Time
		}
		for name, text := range of.PerHour {
			if value, ok := Parse(string(text)); ok { // The CRD's validation may be older.
				list.PerHour[name] = value
			}
		}
		lists = append(lists, list)
	}
	slices.SortStableFunc(lists, func(a, b List) int { return a.From.Compare(b.From) })
	if value, ok := Parse(spec.Attributes[Attribute]); ok && len(lists) == 0 {
		return Lists{{PerHour: map[corev1.ResourceName]float64{corev1.ResourceCPU: value}}}
	}
	return lists
}

// maxAdvertised is the number of prices that are read from labels.
const maxAdvertised = 32

// advertised returns the prices in the labels of a provider; false if it has none. A label that is no price is ignored.
func advertised(labels map[string]string) (List, bool) {
	list := List{PerHour: map[corev1.ResourceName]float64{}}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		name, ok := strings.CutPrefix(key, v1alpha1.PriceLabelPrefix)
		switch {
		case !ok:
		case name == "currency":
			if IsCurrency(labels[key]) {
				list.Currency = labels[key]
			}
		default:
			resource := corev1.ResourceName(strings.ReplaceAll(name, "_", "/")) // nvidia.com_gpu
			if value, ok := Parse(labels[key]); ok && isResource(resource) && len(list.PerHour) < maxAdvertised {
				list.PerHour[resource] = value
			}
		}
	}
	return list, len(list.PerHour) > 0
}

// isResource reports whether a pod can request a resource of that name. The CRD has the same rule.
func isResource(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
		return true
	}
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) || strings.Contains(string(name), "/")
}

// IsCurrency reports whether a text has the form of a code of ISO 4217.
func IsCurrency(code string) bool {
	return len(code) == 3 && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// Parse returns a price; false if the text is not a decimal number as the CRD requires it, such as 0.042.
func Parse(text string) (float64, bool) {
	if text == "" || strings.Trim(text, "0123456789.") != "" {
		return 0, false
	}
	value, err := strconv.ParseFloat(text, 64)
	return value, err == nil && value <= 1e9
}

// At returns the prices that apply at a time; nil if there are none.
func (l Lists) At(t time.Time) *List {
	for i := len(l) - 1; i >= 0; i-- {
		if !l[i].From.After(t) {
			return &l[i]
		}
	}
	return nil
}

// PerCPU returns the price of a CPU and hour at a time, for people; "" if there is none.
func (l Lists) PerCPU(t time.Time) string {
	if list := l.At(t); list != nil {
		if value, ok := list.PerHour[corev1.ResourceCPU]; ok {
			return Amount{value, list.Currency}.String()
		}
	}
	return ""
}

// Next returns the first time after t at which other prices apply; false if there is none.
func (l Lists) Next(t time.Time) (time.Time, bool) {
	for i := range l {
		if l[i].From.After(t) {
			return l[i].From, true
		}
	}
	return time.Time{}, false
}

// Resource returns the price of an hour of an amount of a resource: 0 if the list does not have the resource.
func (l *List) Resource(name corev1.ResourceName, amount int64) float64 {
	return l.PerHour[name] * Units(name, amount)
}

// Hourly returns the price of an hour of a pod with these requests.
func (l *List) Hourly(requests resources.Amounts) Amount {
	total := Amount{Currency: l.Currency}
	for _, name := range slices.Sorted(maps.Keys(requests)) { // The order of a sum decides its last digit.
		total.Value += l.Resource(name, requests[name])
	}
	return total
}

// Units converts an amount, in millicores or bytes, to the unit of its price.
func Units(name corev1.ResourceName, amount int64) float64 {
	switch {
	case name == corev1.ResourceCPU:
		return float64(amount) / 1000
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return float64(amount) / (1 << 30)
	}
	return float64(amount)
}
