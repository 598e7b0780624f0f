package flags

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Faults collects the faults in the options, so that one start reports all of them.
type Faults []string

// Err returns nil if there are none.
func (f Faults) Err() error {
	if len(f) > 0 {
		return f
	}
	return nil
}

// Add adds a fault and its remedy.
func (f *Faults) Add(what, remedy string) {
	*f = append(*f, what+": "+remedy)
}

// When adds a fault if wrong is true.
func (f *Faults) When(wrong bool, what, remedy string) {
	if wrong {
		f.Add(what, remedy)
	}
}

// Require is for a flag that must not be empty.
func (f *Faults) Require(value, what, remedy string) {
	f.When(value == "", what+" is empty", remedy)
}

// OneOf is for a flag with a set of values.
func (f *Faults) OneOf(flag, value string, values ...string) {
	f.When(!slices.Contains(values, value), fmt.Sprintf("%s=%s", flag, value), "use one of "+strings.Join(values, ", "))
}

// Address is for a flag with an address to listen on.
func (f *Faults) Address(flag, value string) {
	if _, _, err := net.SplitHostPort(value); err != nil {
		f.Add(fmt.Sprintf("%s=%s", flag, value), "use HOST:PORT or :PORT")
	}
}

// CIDRs is for a flag with CIDRs.
func (f *Faults) CIDRs(flag string, values []string) {
	for _, cidr := range values {
		_, err := netip.ParsePrefix(cidr)
		f.When(err != nil, flag+"="+cidr, "use ADDRESS/BITS")
	}
}

// ServedAddress is Address for a flag that accepts 0, which disables the server.
func (f *Faults) ServedAddress(flag, value string) {
	if Served(value) != "" {
		f.Address(flag, value)
	}
}

// Selector is for a flag with a label selector.
func (f *Faults) Selector(flag, value string) {
	if _, err := labels.Parse(value); err != nil {
		f.Add(flag+"="+value, "use a label selector: "+err.Error())
	}
}

// Pair is for two flags of which neither is of use alone.
func (f *Faults) Pair(flag1, value1, flag2, value2 string) {
	f.When((value1 == "") != (value2 == ""), "only one of "+flag1+" and "+flag2+" is set", "set both or neither")
}

// Exclusive is for two flags that contradict each other.
func (f *Faults) Exclusive(flag1 string, set1 bool, flag2 string, set2 bool) {
	f.When(set1 && set2, flag1+" together with "+flag2, "leave one of them out")
}

// AtLeastASecond is for a flag whose duration is written in seconds.
func (f *Faults) AtLeastASecond(flag string, value time.Duration) {
	f.When(value < time.Second, fmt.Sprintf("%s=%s", flag, value), "use at least 1s")
}

// Positive is for a flag whose duration must be above 0.
func (f *Faults) Positive(flag string, value time.Duration) {
	f.When(value <= 0, fmt.Sprintf("%s=%s", flag, value), "use a duration above 0")
}

// Limit is for a flag whose value must be above 0. NaN is not.
func (f *Faults) Limit(flag string, value float64) {
	f.When(!(value > 0), fmt.Sprintf("%s=%v", flag, value), "use a number above 0")
}

// Error implements error: all faults in one line.
func (f Faults) Error() string { return strings.Join(f, "; ") }
