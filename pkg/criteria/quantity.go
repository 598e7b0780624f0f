package criteria

import (
	"fmt"
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// shortQuantity is what no quantity of a cluster is longer than. An exponent of ten digits takes resource.ParseQuantity
// hours and gigabytes, for it raises ten to it; and no cost is charged for that.
var shortQuantity = regexp.MustCompile(`^[^eE]{0,30}([eE][+-]?[0-9]{0,2}|Ei)?$`)

// ParseQuantity reads a quantity that somebody may have written to do harm: unlike resource.ParseQuantity it takes no time
// to speak of, whatever the text is.
func ParseQuantity(text string) (resource.Quantity, error) {
	if !shortQuantity.MatchString(text) {
		return resource.Quantity{}, fmt.Errorf("a quantity may have 30 digits, and two more in its exponent: %w",
			resource.ErrFormatWrong)
	}
	return resource.ParseQuantity(text)
}

// boundedQuantities has the functions of Kubernetes' library that read quantities do so by ParseQuantity: a function of
// the same signature takes the place of what is there (cel-go, decls.FunctionDecl.AddOverload).
func boundedQuantities() []cel.EnvOption {
	text := []*cel.Type{cel.StringType}
	return []cel.EnvOption{
		cel.Function("quantity", cel.Overload("string_to_quantity", text, apiservercel.QuantityType,
			cel.UnaryBinding(func(arg ref.Val) ref.Val {
				quantity, err := parseValue(arg)
				if err != nil {
					return types.WrapErr(err)
				}
				return apiservercel.Quantity{Quantity: &quantity}
			}))),
		cel.Function("isQuantity", cel.Overload("is_quantity_string", text, cel.BoolType,
			cel.UnaryBinding(func(arg ref.Val) ref.Val {
				_, err := parseValue(arg)
				return types.Bool(err == nil)
			}))),
	}
}

func parseValue(arg ref.Val) (resource.Quantity, error) {
	text, ok := arg.Value().(string)
	if !ok {
		return resource.Quantity{}, fmt.Errorf("%v is no text", arg.Value())
	}
	return ParseQuantity(text)
}
