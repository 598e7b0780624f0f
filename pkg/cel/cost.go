package cel

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
)

// bytesPerUnit is the number of bytes of text for one unit of cost.
const bytesPerUnit = 16

// functions are all functions that an expression can call, with the cost of a call in addition to its arguments and its
// result, which cost one unit each and more if they are large. The time of all functions is proportional to these,
// except for regular expressions.
var functions = map[string]uint64{
	operators.Conditional: 0, operators.LogicalAnd: 0, operators.LogicalOr: 0, operators.LogicalNot: 0,
	operators.NotStrictlyFalse: 0, operators.Index: 0, operators.OptIndex: 0, operators.OptSelect: 0,
	operators.Add: 0, operators.Subtract: 0, operators.Multiply: 0, operators.Divide: 0, operators.Modulo: 0,
	operators.Negate: 0, operators.Equals: 0, operators.NotEquals: 0, operators.In: 0,
	operators.Less: 0, operators.LessEquals: 0, operators.Greater: 0, operators.GreaterEquals: 0,

	"size": 0, "int": 1, "uint": 1, "double": 1, "string": 1, "bool": 1,

	"contains": 0, "startsWith": 0, "endsWith": 0, "charAt": 1, "substring": 1, "indexOf": 1, "lastIndexOf": 1,
	"lowerAscii": 1, "upperAscii": 1, "trim": 1, "split": 1, "join": 1, "matches": 0, "find": 0,

	"isSorted": 0, "sum": 0, "min": 0, "max": 0,

	"optional.of": 1, "optional.ofNonZeroValue": 1, "optional.none": 0, "hasValue": 0, "value": 0, "or": 0, "orValue": 0,

	"quantity": 10, "isQuantity": 10, "sign": 2, "isGreaterThan": 2, "isLessThan": 2, "compareTo": 2,
	"asApproximateFloat": 2, "asInteger": 2, "isInteger": 2, "add": 5, "sub": 5,

	"semver": 10, "isSemver": 10, "major": 0, "minor": 0, "patch": 0,

	"ip": 5, "isIP": 5, "ip.isCanonical": 10, "family": 0, "isUnspecified": 0, "isLoopback": 0,
	"isLinkLocalMulticast": 0, "isLinkLocalUnicast": 0, "isGlobalUnicast": 0,
	"cidr": 5, "isCIDR": 5, "containsIP": 10, "containsCIDR": 10, "prefixLength": 0, "masked": 5,
}

// errorCost is the cost of making an error.
const errorCost = 10

// meter decorates the steps of a program so that every evaluation of a step is charged. CEL's own cost tracking charges
// after a function has run; it charges some functions far less than they take, and charges nothing for a call whose
// arguments it loses track of.
type meter struct {
	patterns patterns
	// weights has the number of parts of those steps that evaluate several at once, by their id.
	weights map[int64]uint64
	// traversed are the ids of the lists that a function reads to their end.
	traversed map[int64]bool
	// paths has the longest chain of constant names that begins at a variable, by the variable's id; nil if a chain has
	// another kind of step in it.
	paths map[int64]*path
}

// program plans an expression.
func (m *meter) program(env *cel.Env, checked *cel.Ast) (cel.Program, error) {
	return env.Program(checked, cel.CustomDecorator(m.decorate))
}

// weigh notes the charge for the steps of an expression, without its parts that are charged themselves.
func (m *meter) weigh(e ast.Expr) {
	parts := partsOf(e)
	for _, id := range []int64{e.ID(), rootOf(e).ID()} {
		m.weights[id] = max(m.weights[id], parts)
	}
}

// traverse notes that a function reads a list to its end.
func (m *meter) traverse(list ast.Expr) {
	m.traversed[list.ID()], m.traversed[rootOf(list).ID()] = true, true
}

// follow notes the path of an expression that begins at a variable. It is to be called for the longest expression
// first.
func (m *meter) follow(e ast.Expr) {
	root := rootOf(e)
	if root.Kind() != ast.IdentKind {
		return
	}
	if _, longer := m.paths[root.ID()]; longer {
		return
	}
	m.paths[root.ID()] = nil
	var names []string
	for e != root {
		name, constant := nameOf(e)
		if !constant {
			return
		}
		names, e = append(names, name), operandsOf(e)[0]
	}
	slices.Reverse(names)
	m.paths[root.ID()] = pathOf(root.AsIdent(), names)
}

// nameOf returns the name of the field, or the key, that an expression reads of its first operand; false if the name is
// not a constant, or if the expression is of another kind.
func nameOf(e ast.Expr) (string, bool) {
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().FieldName(), !e.AsSelect().IsTestOnly()
	}
	if e.AsCall().FunctionName() != operators.Index {
		return "", false
	}
	key := e.AsCall().Args()[1]
	if key.Kind() != ast.LiteralKind {
		return "", false
	}
	name, isText := key.AsLiteral().(types.String)
	return string(name), isText
}

// operandsOf returns the parts of an expression that CEL evaluates with it in one step.
func operandsOf(e ast.Expr) []ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		return []ast.Expr{e.AsSelect().Operand()}
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect, operators.Conditional:
			return call.Args()
		}
	}
	return nil
}

// rootOf returns the expression whose id the step has that evaluates e.
func rootOf(e ast.Expr) ast.Expr {
	for operands := operandsOf(e); len(operands) == 1 || len(operands) == 2; operands = operandsOf(e) {
		e = operands[0]
	}
	return e
}

func partsOf(e ast.Expr) uint64 {
	sum := uint64(1)
	for _, operand := range operandsOf(e) {
		sum += partsOf(operand)
	}
	return sum
}

// decorate is an interpreter.InterpretableDecorator.
func (m *meter) decorate(step interpreter.Interpretable) (interpreter.Interpretable, error) {
	charge := charge{units: max(1, m.weights[step.ID()]), traversed: m.traversed[step.ID()]}
	switch s := step.(type) {
	case *meteredAttribute:
		return s, nil
	case interpreter.InterpretableAttribute:
		return &meteredAttribute{s, m.paths[step.ID()], charge}, nil
	case interpreter.InterpretableConst:
		return &meteredConst{s, charge}, nil
	case interpreter.InterpretableCall:
		charge.units += functions[s.Function()]
		if bound := m.patterns.bind(s); bound != nil {
			step = bound
		}
	}
	return &metered{step, charge}, nil
}

// charge is the cost of the evaluation of a step.
type charge struct {
	units     uint64
	traversed bool
}

// of charges the result of an evaluation, and returns it. A text longer than MaxText ends the evaluation.
func (c charge) of(result ref.Val, vars interpreter.Activation) ref.Val {
	units := c.units
	switch v := result.(type) {
	case types.String:
		if len(v) > values.MaxText {
			stop(fmt.Sprintf("cost limit exceeded: a string of more than %d bytes", values.MaxText))
		}
		units += uint64(len(v) / bytesPerUnit)
	case *types.Err:
		units += errorCost
	default:
		if !c.traversed {
			break
		}
		if list, isList := result.(traits.Lister); isList {
			units += 2 * uint64(list.Size().(types.Int))
		}
	}
	variablesOf(vars).spend(units)
	return result
}

// variablesOf returns the variables below the loops' variables.
func variablesOf(vars interpreter.Activation) *Variables {
	for {
		if v, is := vars.(*Variables); is {
			return v
		}
		vars = vars.Parent()
	}
}

// The steps of a program, with their charges. Steps that CEL distinguishes by their interfaces keep them.
type (
	metered struct {
		interpreter.Interpretable
		charge charge
	}
	meteredConst struct {
		interpreter.InterpretableConst
		charge charge
	}
	meteredAttribute struct {
		interpreter.InterpretableAttribute
		// path is nil if it has other steps than names.
		path   *path
		charge charge
	}
)

func (m *metered) Eval(vars interpreter.Activation) ref.Val {
	return m.charge.of(m.Interpretable.Eval(vars), vars)
}

func (m *meteredConst) Eval(vars interpreter.Activation) ref.Val {
	return m.charge.of(m.InterpretableConst.Eval(vars), vars)
}

// Eval follows a path without CEL's steps. CEL evaluates the attribute itself in a loop, whose variable can have the
// name of another one, and when a value is absent, because the error names the place.
func (m *meteredAttribute) Eval(vars interpreter.Activation) ref.Val {
	if m.path != nil {
		if v, outside := vars.(*Variables); outside {
			if value, present := m.path.value(v); present {
				return m.charge.of(value, vars)
			}
		}
	}
	return m.charge.of(m.InterpretableAttribute.Eval(vars), vars)
}

// stop ends an evaluation as CEL does at its limit.
func stop(problem string) {
	panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: problem})
}
