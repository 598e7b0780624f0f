// Package celtest makes CEL expressions at random, for tests of code that evaluates them.
package celtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Node is a part of an expression: a text with a % for each of its parts.
type Node struct {
	kind   byte
	format string
	parts  []*Node
	scope  []string
}

// String returns the expression.
func (n *Node) String() string {
	pieces := strings.Split(n.format, "%")
	var text strings.Builder
	for i, piece := range pieces {
		text.WriteString(piece)
		if i < len(n.parts) {
			text.WriteString(n.parts[i].String())
		}
	}
	return text.String()
}

// Generator makes expressions at random, most of which compile.
type Generator struct{ *rand.Rand }

// grammar has, by kind of value (bool, string, number, list of strings, optional, map), how to write one: %k is a part
// of kind k, @k one in which a variable is in scope, which $ names.
var grammar = map[byte][]string{
	'b': {
		"%s == %s", "%s < %s", "%n == %n", "%n < %n", "%s.contains(%s)", "%s.startsWith(%s)", "%s.endsWith(%s)",
		"%s.matches(%p)", "%s in %l", "%s in %m", "%l == %l", "%m == %m", "%l.exists($, @b)", "%l.all($, @b)", "%m.exists($, @b)",
		"%m.all($, @b)", "%l.exists_one($, @b)", "%l.filter($, @b) != %l", "%l.exists(i, $, @b)", "%m.all(i, $, @b)",
		"(%b || %b)", "(%b && %b)", "!%b", "%b ? %b : %b", "isQuantity(%s)", "isSemver(%s)", "isIP(%s)", "isCIDR(%s)",
		"quantity(%s).isLessThan(quantity(%s))", "semver(%s).isLessThan(semver(%s))", "cidr('10.0.0.0/8').containsIP(%s)",
		"%l.isSorted()", "has(provider.kpis.uptime1h)", "bool(%s)", "provider.resources.free == provider.resources.granted",
		"provider.resources.free.exists($, @b)", "%l[?0].hasValue()", "%o.hasValue()",
	},
	's': {
		"pod.annotations['x']", "provider.labels['x']", "provider.id", "'a'", "pod.annotations['none']", "provider.attributes[%s]",
		"(%s + %s)", "%s.substring(%n)", "%s.charAt(%n)", "%s.lowerAscii()", "%s.trim()", "%s.find(%p)", "%l.join(%s)", "%l.max()",
		"%l[%n]", "string(%n)", "(%b ? %s : %s)", "%s.upperAscii()", "%l[?%n].orValue(%s)",
	},
	'n': {
		"0", "1", "500", "%s.size()", "%l.size()", "%m.size()", "%s.indexOf(%s)", "%s.lastIndexOf(%s)", "%l.indexOf(%s)", "int(%s)",
		"(%n + %n)", "(%n * %n)", "semver(%s).major()", "%l.map($, @n).sum()", "quantity(%s).asInteger()", "(%b ? %n : %n)",
	},
	'l': {
		"%s.split(%s)", "%m.map($, @s)", "%l.map($, @s)", "%l.filter($, @b)", "[%s, %s, %s]", "%s.split('')",
		"[%s, %s, %s, %s, %s, %s, %s, %s, %s, %s]", "%m.map($, @b, @s)",
	},
	'o': {"optional.of(%s)", "optional.of(%o)", "optional.ofNonZeroValue(%o)", "optional.none()", "%o.or(%o)", "(%b ? %o : %o)", "%m[?%s]"},
	'm': {"pod.annotations", "pod.labels", "provider.labels", "provider.attributes", "{%s: %s, 'b': 'c'}"},
	'p': {"'a?a?a?a?b'", "'(a|aa)*$b'", "'[^b]*c'", "'(a?){60}b'", "'.*.*.*x'", "'(?i)[a-z]+1'", "'^(a|b|c)*d'", "'(a?){300}'"},
}

// leaves are the texts of parts that have no parts of their own.
var leaves = map[byte]string{
	'b': "true", 's': "pod.annotations['x']", 'n': "1", 'l': "pod.annotations['x'].split('')", 'm': "pod.labels",
	'o': "optional.of('a')",
}

// Filter returns an expression that is true or false, of at most so many levels.
func (g Generator) Filter(depth int) *Node { return g.node('b', depth, nil) }

// Score returns an expression that is a number, of at most so many levels.
func (g Generator) Score(depth int) *Node { return g.node('n', depth, nil) }

func (g Generator) node(kind byte, depth int, scope []string) *Node {
	if kind == 's' && len(scope) > 0 && g.IntN(3) == 0 {
		return &Node{kind: kind, format: scope[g.IntN(len(scope))], scope: scope}
	}
	if depth == 0 && kind != 'p' {
		return &Node{kind: kind, format: leaves[kind], scope: scope}
	}
	rule := grammar[kind][g.IntN(len(grammar[kind]))]
	n := &Node{kind: kind, scope: scope}
	variable := fmt.Sprintf("v%d", len(scope))
	var format strings.Builder
	for i := 0; i < len(rule); i++ {
		switch rule[i] {
		case '$':
			format.WriteString(variable)
		case '%', '@':
			inner := scope
			if rule[i] == '@' {
				inner = append(slices.Clone(scope), variable)
			}
			i++
			n.parts = append(n.parts, g.node(rule[i], depth-1, inner))
			format.WriteByte('%')
		default:
			format.WriteByte(rule[i])
		}
	}
	n.format = format.String()
	return n
}

// Mutate returns a copy in which one part is generated again.
func (g Generator) Mutate(n *Node) *Node {
	same := *n
	if len(n.parts) == 0 || g.IntN(4) == 0 {
		return g.node(n.kind, 1+g.IntN(4), n.scope)
	}
	same.parts = slices.Clone(n.parts)
	i := g.IntN(len(same.parts))
	same.parts[i] = g.Mutate(same.parts[i])
	return &same
}
