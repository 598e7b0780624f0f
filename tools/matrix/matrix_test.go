package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const events = `{"Action":"run","Test":"TestParityOurs"}
{"Action":"pass","Test":"TestParityOurs/events"}
{"Action":"pass","Test":"TestParityOurs/quota"}
{"Action":"pass","Test":"TestParityOurs"}
{"Action":"skip","Test":"TestParityStock"}
{"Action":"pass","Test":"TestFederation/chain/a_Service"}
{"Action":"pass","Test":"TestFederation/chain"}
{"Action":"fail","Test":"TestFederation/faults/failover"}
{"Action":"fail","Test":"TestFederation/faults"}
{"Action":"fail","Test":"TestFederation"}
{"Action":"run","Test":"TestLaterKubernetes"}
{"Action":"run","Test":"TestStockConsumer"}
{"Action":"pass","Test":"TestLaterKubernetes"}
{"Action":"pass","Package":"e2e"}
`

func TestResultsBecomeATable(t *testing.T) {
	dir := t.TempDir()
	document := filepath.Join(dir, "document.md")
	require.NoError(t, os.WriteFile(document, []byte("Before.\n"+begin+"old\n"+end+"\nAfter.\n"), 0o600))
	require.ErrorContains(t, write(dir, document), "run make matrix")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "KUBERNETES=v1.jsonl"), []byte(events), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "LIQO=v1.jsonl"),
		[]byte(`{"Action":"pass","Test":"TestParityOurs/events"}`), 0o600))

	require.ErrorContains(t, write(dir, document), "KUBERNETES=v1: TestFederation/faults/failover failed")

	text, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Equal(t, "Before.\n"+begin+`| tests | KUBERNETES=v1 | LIQO=v1 |
|---|---|---|
| `+"`TestFederation/chain`"+` | 1 of 1 | – |
| `+"`TestFederation/faults`"+` | 0 of 1 | – |
| `+"`TestLaterKubernetes`"+` | 1 of 1 | – |
| `+"`TestParityOurs`"+` | 2 of 2 | 1 of 1 |
| `+"`TestStockConsumer`"+` | 0 of 1 | – |
`+end+"\nAfter.\n", string(text))
}

func TestARunWithoutATestFails(t *testing.T) {
	dir := t.TempDir()
	document := filepath.Join(dir, "document.md")
	require.NoError(t, os.WriteFile(document, []byte(begin+end), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "LIQO=v1.jsonl"), nil, 0o600))
	require.ErrorContains(t, write(dir, document), "LIQO=v1: it has no test")
}
