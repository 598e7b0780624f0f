package criteria

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
)

// ErrExpression is what every *Error is.
var ErrExpression = errors.New("expression")

// Error is a fault of an expression: it does not compile, or it failed while it ran.
type Error struct {
	Expression string
	// Line and Column are where the fault is, from 1; 0 when there is no such place.
	Line, Column int
	// Problem says what is wrong, Remedy what to do about it.
	Problem, Remedy string
	// TooCostly says that it was stopped, at MaxCost.
	TooCostly bool
}

// maxQuoted is how many runes of an expression an error quotes.
const maxQuoted = 120

// Error returns the expression, shortened, the place, the problem, and the remedy.
func (e *Error) Error() string {
	quoted := []rune(e.Expression)
	if len(quoted) > maxQuoted {
		quoted = append(quoted[:maxQuoted:maxQuoted], '…')
	}
	place := ""
	if e.Line > 0 {
		place = fmt.Sprintf(" at %d:%d", e.Line, e.Column)
	}
	remedy := ""
	if e.Remedy != "" {
		remedy = " (" + e.Remedy + ")"
	}
	return fmt.Sprintf("expression %q%s: %s%s", string(quoted), place, e.Problem, remedy)
}

// Is says that e is an ErrExpression.
func (e *Error) Is(target error) bool { return target == ErrExpression }

// compileError reports the first of the issues, and how many follow.
func compileError(expression string, issues *cel.Issues) error {
	all := issues.Errors()
	if len(all) == 0 {
		return &Error{Expression: expression, Problem: issues.Err().Error()}
	}
	first := all[0]
	problem := first.Message
	if len(all) > 1 {
		problem = fmt.Sprintf("%s, and %d more", problem, len(all)-1)
	}
	return &Error{
		Expression: expression,
		Line:       first.Location.Line(),
		Column:     first.Location.Column() + 1,
		Problem:    problem,
		Remedy:     remedyOf(first.Message),
	}
}

// remedyOf knows the faults that people run into first.
func remedyOf(problem string) string {
	for _, known := range []struct{ problem, remedy string }{
		{"undeclared reference", "the variables are provider and pod; text is written in quotes"},
		{"undefined field", fieldsOf()},
		{"no such key", "ask first whether it is there, as in 'region' in provider.attributes && ..."},
		{"is unknown", "ask first whether it is known, as in has(provider.kpis.uptime24h) && ..."},
		{"no matching overload", "amounts and KPIs are doubles: write 2.0 to calculate with them, double('2') for text"},
		{"cost limit exceeded", "leave out loops within loops and regular expressions"},
		{"Syntax error", "see https://cel.dev for the language"},
	} {
		if strings.Contains(problem, known.problem) {
			return known.remedy
		}
	}
	return ""
}
