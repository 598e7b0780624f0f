// Package quantity reads amounts from texts that may be hostile. It has no other dependency than apimachinery.
package quantity

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// shortQuantity matches every quantity that a cluster uses. An exponent of ten digits takes resource.ParseQuantity
// hours and gigabytes, because it computes the power of ten; and CEL charges no cost for that.
var shortQuantity = regexp.MustCompile(`^[^eE]{0,30}([eE][+-]?[0-9]{0,2}|Ei)?$`)

// Parse reads a quantity from an untrusted text: unlike resource.ParseQuantity its time is bounded.
func Parse(text string) (resource.Quantity, error) {
	if !shortQuantity.MatchString(text) {
		return resource.Quantity{}, fmt.Errorf("a quantity may have at most 30 digits, and an exponent of at most two digits: %w",
			resource.ErrFormatWrong)
	}
	return resource.ParseQuantity(text)
}
