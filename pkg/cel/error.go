package cel

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
)

// ErrExpression matches every *Error.
var ErrExpression = errors.New("expression")

// Error is a fault of an expression: it does not compile, or it failed while it ran.
type Error struct {
	Expression string
	// Line and Column are the place of the fault, from 1; 0 if there is no such place.
	Line, Column int
	// Problem describes the fault, Remedy how to correct it.
	Problem, Remedy string
	// TooCostly: it was stopped at MaxCost.
	TooCostly bool
}

// maxQuoted is the number of runes of an expression that an error quotes.
const maxQuoted = 120

// maxProblem is the number of runes of a problem that are kept: it may quote a type, or a text of a pod.
const maxProblem = 300

func shorten(text string, most int) string {
	if len(text) > 4*most {
		text = text[:4*most] // No rune has more bytes.
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// Error returns the expression, shortened, the place, the problem, and the remedy.
func (e *Error) Error() string {
	quoted := shorten(e.Expression, maxQuoted)
	place := ""
	if e.Line > 0 {
		place = fmt.Sprintf(" at %d:%d", e.Line, e.Column)
	}
	remedy := ""
	if e.Remedy != "" {
		remedy = " (" + e.Remedy + ")"
	}
	return fmt.Sprintf("expression %q%s: %s%s", quoted, place, e.Problem, remedy)
}

// Is reports that e is an ErrExpression.
func (e *Error) Is(target error) bool { return target == ErrExpression }

// compileError reports the first of the faults, and the number of the others.
func compileError(expression string, all []*cel.Error) error {
	first := all[0]
	problem := shorten(first.Message, maxProblem)
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

// remedyOf knows the most common faults.
func remedyOf(problem string) string {
	for _, known := range []struct{ problem, remedy string }{
		{"undeclared reference", "the variables are provider and pod; write strings in quotes"},
		{"undefined field", fieldsOf()},
		{"no such key", "test first whether it is set, as in 'region' in provider.attributes && ..."},
		{"is unknown", "test first whether it is known, as in has(provider.kpis.uptime24h) && ..."},
		{"no matching overload", "amounts and KPIs are doubles: write 2.0 to calculate with them, double('2') to convert a string"},
		{"cost limit exceeded", "avoid nested loops and regular expressions"},
		{"Syntax error", "see https://cel.dev for the language"},
	} {
		if strings.Contains(problem, known.problem) {
			return known.remedy
		}
	}
	return ""
}
