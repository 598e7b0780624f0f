package cel

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
)

func TestExpressionsReadQuantitiesInNoTime(t *testing.T) {
	hostile := variables()
	hostile.SetPod(&Pod{Annotations: values.NewTexts(map[string]string{"size": "1e-2000000000"}), Requests: fixed{}})
	for expression, want := range map[string]bool{
		"isQuantity('1e-2000000000')": false,
		"isQuantity('0e2000000000')":  false,
		"isQuantity('64Gi')":          true,
		"isQuantity('much')":          false,
		"quantity('1k').isGreaterThan(quantity('999')) && !quantity('1Ei').add(quantity('1n')).isInteger()": true,
		"isQuantity(pod.annotations['size'])": false,
	} {
		program, err := NewFilter(expression)
		require.NoError(t, err, expression)
		kept, err := program.Filter(hostile)
		require.NoError(t, err, expression)
		require.Equal(t, want, kept, expression)
	}
	program, err := NewFilter("quantity(pod.annotations['size']).isInteger()")
	require.NoError(t, err)
	_, err = program.Filter(hostile)
	require.ErrorContains(t, err, "30 digits")
}

func TestNumbersAreShort(t *testing.T) {
	for text, want := range map[string]bool{
		"0.12": true, "-5": true, "1e3": true, "+1.5E-09": true, "": false, "NaN": false, "inf": false, "1e-320": false, "0x10": false,
		"1_000": false, strings.Repeat("1", 31): false,
	} {
		program, err := NewScore("double('" + text + "')")
		require.NoError(t, err)
		_, err = program.Score(variables())
		require.Equal(t, want, err == nil, "%q: %v", text, err)
	}
}

func TestAddressesAndVersionsAreShort(t *testing.T) {
	long := variables()
	long.SetPod(&Pod{Annotations: values.NewTexts(map[string]string{"x": strings.Repeat("1", maxShortText+1)}), Requests: fixed{}})
	for _, call := range []string{
		"isIP(%s)", "ip(%s) == ip('::1')", "ip.isCanonical(%s)", "isCIDR(%s)", "cidr(%s).prefixLength() > 1", "isSemver(%s)",
		"cidr('10.0.0.0/8').containsIP(%s)", "cidr('10.0.0.0/8').containsCIDR(%s)", "semver(%s).major() > 1",
		"isSemver(%s, true)", "semver(%s, true).major() > 1",
	} {
		program, err := NewFilter(fmt.Sprintf(call, "pod.annotations['x']"))
		require.NoError(t, err, call)
		_, err = program.Filter(long)
		require.ErrorContains(t, err, "at most 64 bytes", call)
	}
}
