package cel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
)

// hostile are expressions that once took seconds or gigabytes, or would with CEL's own functions and costs. Each is
// rejected, or is stopped in time.
func hostile() map[string]string {
	nested := func(levels int, step, inmost string) string {
		for range levels {
			inmost = "[" + step + "].all(x, " + inmost + ")"
		}
		return "[pod.labels.map(k, k)].all(x, " + inmost + ")"
	}
	return map[string]string{
		"counted repetitions":            "pod.annotations['x'].matches('" + strings.Repeat("a{0,999}", 240) + "$b')",
		"one counted repetition":         "pod.annotations['x'].matches('a{0,999}$b')",
		"nested repetitions":             "pod.annotations['x'].matches('(?:" + strings.Repeat("a", 500) + "){1000}')",
		"repetitions of repetitions":     "pod.annotations['x'].matches('((((a{9}){9}){9}){9})*b')",
		"many patterns":                  strings.Repeat("pod.annotations['x'].matches('(a?){100}b') || ", 80) + "false",
		"a pattern of a tenant":          "pod.annotations['x'].matches(pod.annotations['r'])",
		"a pattern that is put together": "pod.annotations['x'].matches('a{0,' + '999}')",
		"folded classes":                 "'a'.matches('(?i)" + strings.Repeat(`[a-\\x{10ffff}]`, 200) + "')",
		"folded categories":              "'a'.matches('(?i)[" + strings.Repeat(`\\pL`, 500) + "]')",
		"chained optMap":                 "optional.of(1)" + strings.Repeat(".optMap(a, a)", 200) + ".hasValue()",
		"doubled lists":                  nested(60, "x + x", "x.size() > 0"),
		"lists of the same list":         nested(60, "[x, x, x, x]", "x == x"),
		"lists found in lists":           nested(60, "[x, x, x, x]", "x in [x]"),
		"lists found by their index":     nested(60, "[x, x, x, x]", "[x].indexOf(x) == 0"),
		"doubled bytes": strings.ReplaceAll(nested(9, "x+x+x+x+x+x+x+x", "x.size() > 0"), "pod.labels.map(k, k)",
			"b'aaaa'"),
		"lists without a type": strings.ReplaceAll(nested(9, "x+x+x+x+x+x+x+x", "x.size() > 0"), "pod.labels.map(k, k)",
			"true ? [1] : [][0].a"),
		"deep types": strings.ReplaceAll(
			nested(9, strings.Repeat("[", 50)+"x"+strings.Repeat("]", 50), "["+strings.Repeat("x,", 300)+"x] == []"),
			"pod.labels.map(k, k)", "1"),
		"maps of maps":                strings.ReplaceAll(nested(9, "{{x: x}: {x: x}}", "true"), "pod.labels.map(k, k)", "{1: 1}"),
		"many types":                  "[" + strings.Repeat("[],", 600) + "[]] == [] && [" + strings.Repeat("0<0,", 490) + "true][0]",
		"the smallest numbers":        "[0, 0, 0, 0].all(a, [" + strings.Repeat("double('1e-320'),", 150) + "1.0].size() > 0)",
		"addresses that are no":       "pod.annotations.all(a, [" + strings.Repeat("0,", 22) + "0].all(b, !isIP(pod.annotations['x'])))",
		"octal classes":               "'a'.matches('(?i)[" + strings.Repeat(`a-\\777`, 160) + "]')",
		"doubled texts":               strings.ReplaceAll(nested(60, "x + x", "x != ''"), "pod.labels.map(k, k)", "'aaaa'"),
		"joined texts":                nested(60, "[x.join(pod.annotations['x'])]", "x.size() == 0"),
		"time zones":                  "[1, 2, 3].all(x, timestamp('2024-01-01T00:00:00Z').getHours('America/New_York') == x)",
		"a large text":                "'" + strings.Repeat("a", MaxLength-20) + "' != 'a'",
		"a text sought in a text":     strings.Repeat("pod.annotations['x'].indexOf(pod.annotations['half'] + 'b') > 0 || ", 55) + "false",
		"annotations for annotations": "pod.annotations.all(a, pod.annotations.all(b, pod.annotations.all(c, a != b + c)))",
		"one of many annotations":     "pod.annotations.all(a, pod.annotations.exists(b, true))",
		"annotations compared":        "pod.annotations.all(a, pod.annotations == pod.annotations)",
		"optionals of optionals":      strings.Repeat("optional.of(", 58) + "1" + strings.Repeat(")", 58) + ".hasValue()",
		"optionals of nothing": strings.Repeat("optional.of(", 57) + "optional.none()" + strings.Repeat(")", 57) + ".hasValue() && " +
			strings.Repeat("optional.ofNonZeroValue(", 57) + "optional.none()" + strings.Repeat(")", 57) + ".hasValue()",
		"optionals in lists":       "[" + strings.Repeat("optional.of([", 28) + "1" + strings.Repeat("])", 28) + "].size() == 1",
		"many computed elements":   "[" + strings.Repeat("pod.annotations['x'],", 160) + "''].join(pod.annotations['x']) == ''",
		"errors that are absorbed": "pod.annotations.exists(a, int(pod.annotations['x']) == 1)",
	}
}

// evaluated compiles an expression, evaluates it as often as a decision would, and returns the time.
func evaluated(pod *Pod, expression string) (time.Duration, error) {
	began := time.Now()
	v := variables()
	v.SetPod(pod)
	p, err := NewFilter(expression)
	if err == nil {
		for range 3 { // An expression that costs too much is not evaluated more often (package scheduler).
			_, err = p.Filter(v)
		}
	}
	return time.Since(began), err
}

// The time of CEL's type checker grows exponentially with the depth of types, and with the square of the length of a
// list.
func TestTypesThatAreSlowToCheckAreRefused(t *testing.T) {
	all := hostile()
	for name, problem := range map[string]string{
		"optionals of optionals": "nested more than", "optionals of nothing": "nested more than", "optionals in lists": "nested more than",
		"many computed elements": "list elements that are not literals",
	} {
		_, err := NewFilter(all[name])
		require.ErrorContains(t, err, problem, name)
	}
	for _, expression := range []string{
		"provider.attributes[?'region'].orValue('') == pod.labels[?'region'].orValue('')",
		"optional.of(optional.of(1)).hasValue() && [optional.none(), optional.of('a')].size() == 2",
		"pod.namespace in ['" + strings.Join(strings.Split(strings.Repeat("a", 290), ""), "','") + "']",
		"[" + strings.Repeat("pod.name,", 59) + "''].size() > 0",
	} {
		_, err := NewFilter(expression)
		require.NoError(t, err)
	}
}

func TestHostileExpressionsAreStopped(t *testing.T) {
	texts := map[string]string{"x": strings.Repeat("a", values.MaxText), "half": strings.Repeat("a", values.MaxText/2), "r": "(a?){999}b"}
	for i := range 50_000 {
		texts[fmt.Sprintf("z%d", i)] = ""
	}
	pod := &Pod{Labels: values.NewTexts(map[string]string{"a": "b"}), Annotations: values.NewTexts(texts), Requests: fixed{}}
	for name, expression := range hostile() {
		require.LessOrEqual(t, len(expression), MaxLength, name)
		took, err := evaluated(pod, expression)
		for tries := 0; took > time.Second && tries < 3; tries++ { // Another process had the processor.
			again, _ := evaluated(pod, expression)
			took = min(took, again)
		}
		t.Logf("%s: %s: %.150v", name, took, err)
		require.Less(t, took, time.Second, name)
	}
}
