package dashboard

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// screenshots is where the pictures are left: SCREENSHOTS, or a directory that is named in the output.
func screenshots(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "liqo-broker-vk-screenshots")
	}
	dir, err := filepath.Abs(dir)
	require.NoError(t, err)
	t.Logf("screenshots are in %s", dir)
	return dir
}

func TestDashboard(t *testing.T) {
	federation := small()
	server := serve(t, federation.handler())
	Scenarios(t, Target{
		URL: "http://" + server.address + "/", ConsumerToken: consumerToken, OperatorToken: operatorToken,
		Provider: "helsinki-dc1", Namespace: "shop-consumer1", Pod: federation.placements[4].Pod,
		Stop: server.Stop, Start: server.Start, Screenshots: screenshots(t),
	})
}
