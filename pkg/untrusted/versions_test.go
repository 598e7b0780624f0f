package untrusted

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/version"
)

// The released modules link no version with a known vulnerability of a module that a provider's input reaches.
func TestNoKnownVulnerabilityIsLinked(t *testing.T) {
	for module, repaired := range map[string]string{
		"github.com/moby/spdystream": "v0.5.1",  // CVE-2026-35469
		"golang.org/x/net":           "v0.53.0", // CVE-2026-33814
		"google.golang.org/grpc":     "v1.79.3", // CVE-2026-33186
		"go.opentelemetry.io/otel":   "v1.40.0", // CVE-2026-24051, in the module sdk of the same version
	} {
		for _, file := range []string{"../../go.mod", "../../kubelet-v0/go.mod"} {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			found := regexp.MustCompile(`(?m)^\s*(?:require )?`+regexp.QuoteMeta(module)+` (v\S+)`).FindAllSubmatch(text, -1)
			require.Len(t, found, 1, "%s in %s", module, file)
			linked, err := version.ParseSemantic(string(found[0][1]))
			require.NoError(t, err)
			require.True(t, linked.AtLeast(version.MustParseSemantic(repaired)), "%s %s in %s", module, linked, file)
		}
	}
}
