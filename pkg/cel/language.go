package cel

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	functionsapi "github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
)

// environment is the CEL environment of every expression. Building it takes milliseconds.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	libraries, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(),
		cel.EagerlyValidateDeclarations(true),
		cel.CrossTypeNumericComparisons(true),
		cel.ASTValidators(cel.ValidateHomogeneousAggregateLiterals()),
		cel.OptionalTypes(),
		cel.ParserRecursionLimit(maxDepth),
		// optMap and optFlatMap copy their operand: a chain of them doubles the expression with every link.
		cel.ClearMacros(), cel.Macros(cel.StandardMacros...),
		ext.Strings(ext.StringsVersion(0)),
		ext.TwoVarComprehensions(),
		library.Regex(),
		library.Lists(),
		library.Quantity(),
		library.IP(),
		library.CIDR(),
		library.SemverLib(library.SemverVersion(1)),
	)
	if err != nil {
		return nil, err
	}
	return libraries.Extend(append(append(append(boundedQuantities(), linearSearches()...), shortTexts(libraries)...),
		boundedNumbers(),
		cel.CustomTypeProvider(values.TypeProvider{
			Provider: libraries.CELTypeProvider(), Schemas: []*values.Schema{providerSchema, podSchema, kpisSchema, resourcesSchema},
		}),
		cel.Variable("provider", providerSchema.Type),
		cel.Variable("pod", podSchema.Type),
	)...)
})

// The limits of an expression, checked before its types are: the time for that grows with the square of the calls and
// lists, and exponentially with the depth of types.
const (
	// maxDepth is how deep an expression may be nested.
	maxDepth = 60
	// maxLoops is how many loops it may have.
	maxLoops = 10
	// maxCalls is how many functions and operators it may have, && and || included.
	maxCalls = 200
	// maxLists is how many lists may be written in it, and maxElements how many elements they may have together.
	// maxComputed is how many of these may be anything but a value that is written out: the types of 160 take 50 ms to
	// check.
	maxLists    = 30
	maxElements = 300
	maxComputed = 60
	// maxTypeDepth is how deep lists and optionals may be in lists and optionals.
	maxTypeDepth = 2
)

// accumulator is the variable in which a macro collects its result.
const accumulator = "@result"

// maxShortText is how many bytes a text may have that is read as an address or a version. Their readers quote it in
// several errors, and versions are compared part by part.
const maxShortText = 64

// shortTexts makes the functions that read addresses and versions reject longer texts.
func shortTexts(libraries *cel.Env) []cel.EnvOption {
	var options []cel.EnvOption
	for _, name := range []string{
		"ip", "isIP", "ip.isCanonical", "cidr", "isCIDR", "containsIP", "containsCIDR", "semver", "isSemver",
	} {
		function := libraries.Functions()[name]
		bindings, err := function.Bindings()
		if err != nil {
			panic(err) // Only a fault of a linked library.
		}
		of := map[string]functionsapi.FunctionOp{}
		for _, binding := range bindings {
			switch {
			case binding.Unary != nil:
				of[binding.Operator] = func(args ...ref.Val) ref.Val { return binding.Unary(args[0]) }
			case binding.Binary != nil:
				of[binding.Operator] = func(args ...ref.Val) ref.Val { return binding.Binary(args[0], args[1]) }
			default:
				of[binding.Operator] = binding.Function
			}
		}
		for _, overload := range function.OverloadDecls() {
			run := of[overload.ID()]
			bounded := cel.FunctionBinding(func(args ...ref.Val) ref.Val {
				for _, arg := range args {
					if text, isText := arg.(types.String); isText && len(text) > maxShortText {
						return types.NewErr("%s accepts a string of at most %d bytes", name, maxShortText)
					}
				}
				return run(args...)
			})
			declare := cel.Overload
			if overload.IsMemberFunction() {
				declare = cel.MemberOverload
			}
			options = append(options, cel.Function(name, declare(overload.ID(), overload.ArgTypes(), overload.ResultType(), bounded)))
		}
	}
	return options
}

// linearSearches makes indexOf and lastIndexOf of texts take time proportional to the text, not to the product of both
// texts.
func linearSearches() []cel.EnvOption {
	search := func(name, overload string, index func(text, sought string) int) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(overload, []*cel.Type{cel.StringType, cel.StringType}, cel.IntType,
			cel.BinaryBinding(func(text, sought ref.Val) ref.Val {
				t, isText := text.Value().(string)
				s, isSought := sought.Value().(string)
				if !isText || !isSought {
					return types.MaybeNoSuchOverloadErr(text)
				}
				at := index(t, s)
				if at < 0 {
					return types.IntNegOne
				}
				return types.Int(utf8.RuneCountInString(t[:at]))
			})))
	}
	return []cel.EnvOption{
		search("indexOf", "string_index_of_string", strings.Index),
		search("lastIndexOf", "string_last_index_of_string", strings.LastIndex),
	}
}

// checker keeps the first fault of an expression.
type checker struct {
	expression string
	tree       *ast.AST
	err        error

	loops, calls, lists, elements, computed int
	meter                                   *meter
}

func (c *checker) fail(at ast.Expr, problem, remedy string) {
	if c.err != nil {
		return
	}
	place := c.tree.SourceInfo().GetStartLocation(at.ID())
	c.err = &Error{
		Expression: c.expression, Line: place.Line(), Column: place.Column() + 1, Problem: shorten(problem, maxProblem), Remedy: remedy,
	}
}

// checkParsed rejects parts that an expression may not have, before its types are checked.
func checkParsed(expression string, parsed *ast.AST) error {
	c := checker{expression: expression, tree: parsed}
	ast.PreOrderVisit(parsed.Expr(), ast.NewExprVisitor(c.visitParsed))
	if c.err == nil {
		c.typeDepth(parsed.Expr(), nil)
	}
	return c.err
}

func (c *checker) visitParsed(e ast.Expr) {
	atMost := func(count *int, more, most int, what, remedy string) {
		if *count += more; *count > most {
			c.fail(e, fmt.Sprintf("it has more than %d %s", most, what), remedy)
		}
	}
	switch e.Kind() {
	case ast.ComprehensionKind:
		atMost(&c.loops, 1, maxLoops, "loops", "use fewer of all, exists, exists_one, filter and map")
	case ast.CallKind:
		atMost(&c.calls, 1, maxCalls, "functions and operators", "use x in ['a', 'b'] instead of x == 'a' || x == 'b'")
		if name := e.AsCall().FunctionName(); !isAvailable(name) {
			c.fail(e, strings.TrimPrefix(name, "cel.@")+" is not available", "docs/policies.md lists the functions")
		}
	case ast.ListKind:
		atMost(&c.lists, 1, maxLists, "lists", "write fewer")
		atMost(&c.elements, len(e.AsList().Elements()), maxElements, "list elements", "write fewer")
		for _, element := range e.AsList().Elements() {
			if element.Kind() != ast.LiteralKind {
				atMost(&c.computed, 1, maxComputed, "list elements that are not literals", "write fewer, or use literals")
			}
		}
	case ast.MapKind, ast.StructKind:
		c.fail(e, "literals of maps and objects are not available", "write x == 'a' ? 1 : 2")
	case ast.LiteralKind:
		switch value := e.AsLiteral().Value().(type) {
		case []byte:
			c.fail(e, "bytes are not available", "write a string in quotes, without the prefix b")
		case string:
			if len(value) > values.MaxText {
				c.fail(e, fmt.Sprintf("a string has %d bytes, more than %d", len(value), values.MaxText), "shorten it")
			}
		}
	}
}

// isAvailable reports whether a function may be called. Before types are checked, the part of a name before a dot looks
// like a variable.
func isAvailable(name string) bool {
	for known := range functions {
		if known == name || strings.HasSuffix(known, "."+name) {
			return true
		}
	}
	return false
}

// typeDepth returns how deep lists and optionals may be in those that an expression gives, at most, where variables has
// the depths of the variables of loops.
func (c *checker) typeDepth(e ast.Expr, variables map[string]int) int {
	depth := 0
	deepest := func(parts ...ast.Expr) {
		for _, part := range parts {
			depth = max(depth, c.typeDepth(part, variables))
		}
	}
	switch e.Kind() {
	case ast.IdentKind:
		depth = variables[e.AsIdent()]
	case ast.SelectKind:
		deepest(e.AsSelect().Operand())
	case ast.ListKind:
		deepest(e.AsList().Elements()...)
		depth++
	case ast.CallKind:
		call := e.AsCall()
		if call.IsMemberFunction() {
			deepest(call.Target())
		}
		deepest(call.Args()...)
		switch call.FunctionName() {
		case "split", "none", operators.OptSelect, operators.OptIndex:
			depth = max(depth, 1)
		case "of", "ofNonZeroValue":
			depth++
		}
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		deepest(loop.IterRange())
		inner := maps.Clone(variables)
		if inner == nil {
			inner = map[string]int{}
		}
		inner[loop.IterVar()], inner[loop.IterVar2()] = depth, depth
		variables = inner
		deepest(loop.AccuInit(), loop.LoopStep())
	}
	if depth > maxTypeDepth {
		c.fail(e, fmt.Sprintf("lists or optionals are nested more than %d deep", maxTypeDepth), "write flat lists")
	}
	return depth
}

// check rejects parts that CEL's type checker accepts, but whose time or memory no cost bounds. It returns the meter of
// the expression.
func check(expression string, checked *ast.AST) (*meter, error) {
	c := checker{
		expression: expression, tree: checked,
		meter: &meter{patterns: patterns{}, weights: map[int64]uint64{}, traversed: map[int64]bool{}, paths: map[int64]*path{}},
	}
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(c.visit))
	return c.meter, c.err
}

func (c *checker) visit(e ast.Expr) {
	if c.err != nil {
		return
	}
	c.meter.weigh(e)
	c.meter.follow(e)
	switch c.typeOf(e).Kind() {
	case types.DynKind, types.AnyKind, types.BytesKind:
		c.fail(e, "the type is not known", "write lists with at least one element")
		return
	}
	if e.Kind() == ast.CallKind {
		c.visitCall(e, e.AsCall())
	}
}

func (c *checker) visitCall(e ast.Expr, call ast.CallExpr) {
	name, args := call.FunctionName(), call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	if _, available := functions[name]; !available {
		c.fail(e, name+" is not available", "docs/policies.md lists the functions")
		return
	}
	if len(args) > 2 && (name == "indexOf" || name == "lastIndexOf") {
		c.fail(e, name+" takes no offset", "search in a substring")
	}
	switch name {
	case operators.Add:
		// A list that is added is not copied, but read through: the time doubles with every addition.
		if isMacros := args[0].Kind() == ast.IdentKind && args[0].AsIdent() == accumulator; !isMacros && !isScalar(c.typeOf(e)) {
			c.fail(e, "lists cannot be added", "write one list")
		}
	case operators.Equals, operators.NotEquals, operators.In, "indexOf", "lastIndexOf", "join", "isSorted", "sum", "min", "max":
		c.visitTraversed(e, name, args)
	case "split":
		c.meter.traverse(e)
	case "matches", "find":
		if args[1].Kind() != ast.LiteralKind {
			c.fail(args[1], "a regular expression must be a literal", "write it in quotes")
			return
		}
		text, _ := args[1].AsLiteral().Value().(string)
		if err := c.meter.patterns.add(text); err != nil {
			c.fail(args[1], err.Error(), "shorten it; write a? instead of a{0,99}, [^/] instead of \\PL")
		}
	}
}

// visitTraversed rejects comparisons of values that contain lists or maps: a list may contain the same list many times.
func (c *checker) visitTraversed(e ast.Expr, name string, args []ast.Expr) {
	for _, arg := range args {
		switch t := c.typeOf(arg); {
		case isScalar(t), name == operators.In && t.Kind() == types.MapKind:
		case t.Kind() == types.ListKind && isScalar(t.Parameters()[0]):
			c.meter.traverse(arg)
		default:
			c.fail(e, fmt.Sprintf("a %s cannot be compared", t), "compare its elements; use size() to test for an empty one")
		}
	}
}

func (c *checker) typeOf(e ast.Expr) *types.Type { return c.tree.GetType(e.ID()) }

// isScalar reports whether the values of a type contain no other values.
func isScalar(t *types.Type) bool {
	return len(t.Parameters()) == 0 && t.Kind() != types.DynKind && t.Kind() != types.AnyKind && t.Kind() != types.TypeParamKind
}
