package cel

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

const (
	// maxInstructions is the number of instructions that the regular expressions of one expression may have together
	// when they are compiled.
	maxInstructions = 1000
	// stepsPerUnit is the number of steps for one unit of cost. A step is one instruction for one byte of text.
	stepsPerUnit = 16
)

// pattern is a compiled regular expression, and the number of its instructions.
type pattern struct {
	*regexp.Regexp
	instructions int
}

// patterns are the regular expressions of an expression, by their text. A regular expression takes time in proportion
// to its instructions times the bytes of the text. Both are known before it runs.
type patterns map[string]pattern

// add compiles a regular expression, unless it is too large.
func (p patterns) add(text string) error {
	if _, known := p[text]; known {
		return nil
	}
	// Folding the case of a class such as [a-\x{10ffff}] takes milliseconds even in the parser.
	escaped := false
	for _, c := range []byte(text) {
		if c >= utf8.RuneSelf || escaped && strings.IndexByte("pPx01234567", c) >= 0 {
			return fmt.Errorf("the regular expression %q has non-ASCII characters, or an escape of \\p, \\P, \\x or \\0 to \\7", text)
		}
		escaped = c == '\\' && !escaped
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return fmt.Errorf("the regular expression is invalid: %w", err)
	}
	// The tree still has counted repetitions as they are written. Compiling writes them out.
	size := instructions(tree)
	if p.instructions()+size > maxInstructions {
		return fmt.Errorf("the regular expressions have more than %d instructions in total", maxInstructions)
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return fmt.Errorf("the regular expression is invalid: %w", err)
	}
	p[text] = pattern{compiled, size}
	return nil
}

// instructions returns the number of instructions of all of them.
func (p patterns) instructions() int {
	sum := 0
	for _, one := range p {
		sum += one.instructions
	}
	return sum
}

// instructions returns how many instructions a regular expression has at most when it is compiled, limited to a number
// beyond maxInstructions.
func instructions(tree *syntax.Regexp) int {
	sum := 2 + len(tree.Rune)
	for _, sub := range tree.Sub {
		sum += instructions(sub)
	}
	if tree.Op == syntax.OpRepeat {
		sum *= max(tree.Min, tree.Max) + 1
	}
	return min(sum, maxInstructions+1)
}

// bind returns a step that runs a compiled pattern instead of a function of regular expressions; nil if the call is not
// such a function.
func (p patterns) bind(call interpreter.InterpretableCall) interpreter.Interpretable {
	if call.Function() != "matches" && call.Function() != "find" {
		return nil
	}
	constant, isConstant := call.Args()[1].(interpreter.InterpretableConst)
	if !isConstant {
		return nil
	}
	text, _ := constant.Value().Value().(string)
	compiled, known := p[text]
	if !known {
		return nil
	}
	return &matching{id: call.ID(), text: call.Args()[0], pattern: compiled, find: call.Function() == "find"}
}

// matching is a step that matches a text, or finds the first match in it.
type matching struct {
	id      int64
	text    interpreter.Interpretable
	pattern pattern
	find    bool
}

// ID returns the id of the call.
func (m *matching) ID() int64 { return m.id }

// Eval charges the cost of matching before it begins.
func (m *matching) Eval(vars interpreter.Activation) ref.Val {
	value := m.text.Eval(vars)
	text, isText := value.(types.String)
	if !isText {
		return types.MaybeNoSuchOverloadErr(value)
	}
	variablesOf(vars).spend(uint64(m.pattern.instructions * (len(text) + 1) / stepsPerUnit))
	if m.find {
		return types.String(m.pattern.FindString(string(text)))
	}
	return types.Bool(m.pattern.MatchString(string(text)))
}
