package quantity

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func TestParseReadsWhatClustersHave(t *testing.T) {
	for _, text := range []string{
		"0", "1", "-1", "+1", "100m", "1.5", ".5", "64Gi", "1Ei", "9E", "1e3", "1E3", "12e-6", "1e+18", "250n", "3u", "0.000001Ki",
		"9223372036854775807", "123456789012345678901234567890",
	} {
		want, err := resource.ParseQuantity(text)
		require.NoError(t, err, text)
		got, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

// Any of these would take from seconds to hours.
func TestParseTakesNoTime(t *testing.T) {
	texts := []string{
		"1e-2000000000", "0e2000000000", "1E-2000000000", "-1e+300000000", "1e-300000000", "0." + strings.Repeat("0", 1000) + "1",
		strings.Repeat("9", 1_000_000), "1e 300000000", "1ee300000000", "1e-e300000000",
	}
	for _, text := range texts {
		began := time.Now()
		_, err := Parse(text)
		require.ErrorIs(t, err, resource.ErrFormatWrong)
		assert.Less(t, time.Since(began), time.Second)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[+-]?[0-9]{1,40}[.]?[0-9]{0,3}[eE]?[+-]?[0-9]{0,12}[mkMGTPEi]{0,2}`).Draw(t, "text")
		began := time.Now()
		parsed, err := Parse(text)
		if err == nil {
			_ = parsed.Value() + parsed.MilliValue()
		}
		if took := time.Since(began); took > time.Second {
			t.Fatalf("it took %v", took)
		}
	})
}
