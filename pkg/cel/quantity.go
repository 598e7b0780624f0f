package cel

import (
	"fmt"
	"regexp"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources/quantity"
)

// boundedQuantities makes the functions of Kubernetes' library that read quantities use quantity.Parse: a function of
// the same signature replaces the existing one (cel-go, decls.FunctionDecl.AddOverload).
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

// shortNumber matches every number that people write. The smallest numbers take strconv.ParseFloat a hundred times as
// long.
var shortNumber = regexp.MustCompile(`^[+-]?[0-9.]{1,30}([eE][+-]?[0-9]{1,2})?$`)

// boundedNumbers makes double read only short texts.
func boundedNumbers() cel.EnvOption {
	return cel.Function(overloads.TypeConvertDouble, cel.Overload(overloads.StringToDouble, []*cel.Type{cel.StringType}, cel.DoubleType,
		cel.UnaryBinding(func(arg ref.Val) ref.Val {
			text, ok := arg.(types.String)
			if !ok || !shortNumber.MatchString(string(text)) {
				return types.NewErr("a number has at most 30 digits, and two more in its exponent")
			}
			return text.ConvertToType(types.DoubleType)
		})))
}

func parseValue(arg ref.Val) (resource.Quantity, error) {
	text, ok := arg.Value().(string)
	if !ok {
		return resource.Quantity{}, fmt.Errorf("%v is not a string", arg.Value())
	}
	return quantity.Parse(text)
}
