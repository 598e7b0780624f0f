package criteria

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	// MaxLength is how many bytes an expression may have.
	MaxLength = 4096
	// MaxCost is what one evaluation may cost, in CEL's units; it stands for a few milliseconds.
	MaxCost = 2_000
	// MaxCostInAll is what all evaluations from one Renew of the variables to the next may cost: those of one decision. It stands for
	// some ten milliseconds, in which no other decision is made: whoever makes pods must not hold up everybody's.
	MaxCostInAll = 50 * MaxCost
	// maxUncounted is the worst case of expressions whose cost is not counted.
	maxUncounted = 100
)

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	text    string
	isScore bool
	program cel.Program
}

// NewFilter compiles an expression that is true for the providers to keep.
// It returns an *Error, which is an ErrExpression, that says where the fault is and what to do.
func NewFilter(expression string) (*Program, error) {
	return compile(expression, false)
}

// NewScore compiles an expression that gives a number, 0 (worst) to 100 (best).
// It returns an *Error, which is an ErrExpression, that says where the fault is and what to do.
func NewScore(expression string) (*Program, error) {
	return compile(expression, true)
}

// Text returns the expression.
func (p *Program) Text() string { return p.text }

// Filter says whether a filter keeps the provider of the variables. It returns an *Error, which is an ErrExpression,
// when the expression fails: it reads what is absent, or costs more than MaxCost, or than MaxCostInAll leaves.
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

// Score returns what a score gives the provider of the variables, limited to 0 to 100. It returns an *Error like
// Filter, also for what is not a number.
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

// errSpent is the problem of an evaluation that the ones before have left nothing for.
var errSpent = errors.New("cost limit exceeded over all providers")

// eval runs the expression, at the cost of the variables' budget.
func (p *Program) eval(variables *Variables) (ref.Val, error) {
	if variables.spent >= MaxCostInAll {
		return nil, errSpent
	}
	value, details, err := p.program.Eval(variables)
	if cost := details.ActualCost(); cost != nil {
		variables.spent += *cost
	}
	return value, err
}

func (p *Program) fail(err error) error {
	var stopped interpreter.EvalCancelledError
	return &Error{
		Expression: p.text, Problem: err.Error(), Remedy: remedyOf(err.Error()),
		TooCostly: errors.Is(err, errSpent) || errors.As(err, &stopped) && stopped.Cause == interpreter.CostLimitExceeded,
	}
}

// environment is the one that every expression is compiled in. Building it takes milliseconds.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	libraries, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.ASTValidators(
			cel.ValidateDurationLiterals(),
			cel.ValidateTimestampLiterals(),
			cel.ValidateRegexLiterals(),
			cel.ValidateHomogeneousAggregateLiterals(),
		),
		// Costs are charged when a function has returned. So those are left out whose result, or work, can be far
		// larger than what they are given: of strings, format (version 1); sets; and lists.range and its like.
		ext.Strings(ext.StringsVersion(0)),
		ext.TwoVarComprehensions(),
		library.URLs(),
		library.Regex(),
		library.Lists(),
		library.Quantity(),
		library.IP(),
		library.CIDR(),
		library.Format(),
		library.SemverLib(library.SemverVersion(1)),
	)
	if err != nil {
		return nil, err
	}
	return libraries.Extend(append(boundedQuantities(),
		cel.CustomTypeProvider(typeProvider{libraries.CELTypeProvider()}),
		cel.Variable("provider", providerSchema.object),
		cel.Variable("pod", podSchema.object),
	)...)
})

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
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, compileError(expression, issues)
	}
	if err := checkResult(expression, checked.OutputType(), isScore); err != nil {
		return nil, err
	}
	if err := checkGrowth(expression, checked); err != nil {
		return nil, err
	}
	program, err := env.Program(checked, programOptions(env, checked)...)
	if err != nil {
		return nil, &Error{Expression: expression, Problem: err.Error(), Remedy: remedyOf(err.Error())}
	}
	return &Program{text: expression, isScore: isScore, program: program}, nil
}

func checkResult(expression string, result *cel.Type, isScore bool) error {
	problem := fmt.Sprintf("it gives a %s", result)
	switch {
	case !isScore && !result.IsExactType(cel.BoolType):
		return &Error{
			Expression: expression, Problem: problem + ", a filter must give a bool",
			Remedy: "compare the value with one, as in provider.attributes['region'] == 'eu'",
		}
	case isScore && !result.IsExactType(cel.IntType) && !result.IsExactType(cel.DoubleType):
		return &Error{
			Expression: expression, Problem: problem + ", a score must give an int or a double",
			Remedy: "convert the value, as in double(provider.attributes['stars']), or choose one, as in x ? 100 : 0",
		}
	}
	return nil
}

// checkGrowth refuses replace, by which a text grows a thousandfold in one step. It comes with the other functions of
// strings.
func checkGrowth(expression string, checked *cel.Ast) error {
	tree := checked.NativeRep()
	calls := ast.MatchDescendants(ast.NavigateAST(tree), ast.FunctionMatcher("replace"))
	if len(calls) == 0 {
		return nil
	}
	place := tree.SourceInfo().GetStartLocation(calls[0].ID())
	return &Error{
		Expression: expression, Line: place.Line(), Column: place.Column() + 1,
		Problem: "replace is not available", Remedy: "take the text apart by split, substring, or find",
	}
}

// programOptions limits the cost of running the expression. Keeping account of it takes more time than most
// expressions do, and is left out where the worst case, whatever the variables hold, is hardly anything.
func programOptions(env *cel.Env, checked *cel.Ast) []cel.ProgramOption {
	estimate, err := env.EstimateCost(checked, &library.CostEstimator{})
	if err == nil && estimate.Max <= maxUncounted {
		return []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	}
	return []cel.ProgramOption{
		cel.EvalOptions(cel.OptOptimize, cel.OptTrackCost),
		cel.CostTracking(&library.CostEstimator{}),
		cel.CostLimit(MaxCost),
	}
}
