package cel

import (
	"errors"
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

const (
	// MaxLength is the greatest length of an expression in bytes.
	MaxLength = 4096
	// MaxCost is the greatest cost of one evaluation. A unit is one step of it, or 16 bytes of a text, or 16 steps of a
	// regular expression; it takes 0.1 to 0.3 microseconds.
	MaxCost = 2_000
	// MaxCostInAll is the greatest cost of all evaluations with the same Variables, which are one decision's. It is
	// equivalent to some ten milliseconds, in which a worker of the broker makes no other decision.
	MaxCostInAll = 50 * MaxCost
)

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	text    string
	isScore bool
	program cel.Program
	// instructions is the number of instructions of its regular expressions.
	instructions int
}

// NewFilter compiles an expression that is true for the providers to use.
// It returns an *Error, which is an ErrExpression, with the place of the fault and a remedy.
func NewFilter(expression string) (*Program, error) {
	return compile(expression, false)
}

// NewScore compiles an expression that returns a number, 0 (worst) to 100 (best). It returns an *Error, which is an
// ErrExpression, with the place of the fault and a remedy.
func NewScore(expression string) (*Program, error) {
	return compile(expression, true)
}

// Text returns the expression.
func (p *Program) Text() string { return p.text }

// Filter reports whether a filter accepts the provider of the variables. It returns an *Error, which is an
// ErrExpression, when the expression fails: it reads an absent value, costs more than MaxCost, or more than the rest of
// MaxCostInAll.
func (p *Program) Filter(variables *Variables) (bool, error) {
	if p.isScore {
		return false, p.fail(errors.New("it is a score, not a filter"))
	}
	value, err := p.eval(variables)
	if err != nil {
		return false, p.fail(err)
	}
	return value == types.True, nil
}

// Score returns the score of the provider of the variables, limited to 0 to 100. It returns an *Error like Filter, also
// if the result is not a number.
func (p *Program) Score(variables *Variables) (float64, error) {
	if !p.isScore {
		return 0, p.fail(errors.New("it is a filter, not a score"))
	}
	value, err := p.eval(variables)
	if err != nil {
		return 0, p.fail(err)
	}
	score := math.NaN()
	switch v := value.(type) {
	case types.Int:
		score = float64(v)
	case types.Double:
		score = float64(v)
	}
	if math.IsNaN(score) {
		return 0, p.fail(fmt.Errorf("%v is not a number", value))
	}
	return min(max(score, 0), 100), nil
}

// errSpent is the problem of an evaluation after the previous ones have used up the budget.
var errSpent = errors.New("cost limit exceeded over all providers")

// eval runs the expression, and charges it to the variables' budget.
func (p *Program) eval(variables *Variables) (ref.Val, error) {
	if variables.spent >= MaxCostInAll {
		return nil, errSpent
	}
	variables.limit = variables.spent + MaxCost
	value, _, err := p.program.Eval(variables)
	return value, err
}

func (p *Program) fail(err error) error {
	var stopped interpreter.EvalCancelledError
	return &Error{
		Expression: p.text, Problem: shorten(err.Error(), maxProblem), Remedy: remedyOf(err.Error()),
		TooCostly: errors.Is(err, errSpent) || errors.As(err, &stopped) && stopped.Cause == interpreter.CostLimitExceeded,
	}
}

func compile(expression string, isScore bool) (*Program, error) {
	if len(expression) > MaxLength {
		return nil, &Error{
			Expression: expression,
			Problem:    fmt.Sprintf("it has %d bytes, more than %d", len(expression), MaxLength),
			Remedy:     "shorten it, or split it between the policy and the pod",
		}
	}
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	checked, issues := env.Parse(expression)
	if len(issues.Errors()) == 0 {
		if err := checkParsed(expression, checked.NativeRep()); err != nil {
			return nil, err
		}
		checked, issues = env.Check(checked)
	}
	if len(issues.Errors()) > 0 { // Err of issues would quote the whole expression for each.
		return nil, compileError(expression, issues.Errors())
	}
	if err := checkResult(expression, checked.OutputType(), isScore); err != nil {
		return nil, err
	}
	m, err := check(expression, checked.NativeRep())
	if err != nil {
		return nil, err
	}
	program, err := m.program(env, checked)
	if err != nil {
		return nil, &Error{Expression: expression, Problem: err.Error(), Remedy: remedyOf(err.Error())}
	}
	return &Program{text: expression, isScore: isScore, program: program, instructions: m.patterns.instructions()}, nil
}

func checkResult(expression string, result *cel.Type, isScore bool) error {
	problem := fmt.Sprintf("it returns a %s", result)
	switch {
	case !isScore && !result.IsExactType(cel.BoolType):
		return &Error{
			Expression: expression, Problem: problem + ", a filter must return a bool",
			Remedy: "compare the value, as in provider.attributes['region'] == 'eu'",
		}
	case isScore && !result.IsExactType(cel.IntType) && !result.IsExactType(cel.DoubleType):
		return &Error{
			Expression: expression, Problem: problem + ", a score must return an int or a double",
			Remedy: "convert the value, as in double(provider.attributes['stars']), or choose one, as in x ? 100 : 0",
		}
	}
	return nil
}
