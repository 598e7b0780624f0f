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
	file := func(name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	file(document, "Before.\n"+begin+"old\n"+end+"\nAfter.\n")
	file(recordFile, `{"LIQO=v1": {"TestParityOurs": {"passed": 1, "run": 1}}}`)
	require.ErrorContains(t, write(dir), "run make matrix")
	file(resultsDir+"/KUBERNETES=v1.jsonl", events)

	err := write(dir)
	require.ErrorContains(t, err, "KUBERNETES=v1: TestFederation/faults/failover failed")
	require.ErrorContains(t, err, "KUBERNETES=v1: TestStockConsumer failed")
	require.ErrorContains(t, err, "KUBERNETES=v1: no test of TestParityStock was run")

	text, err := os.ReadFile(filepath.Join(dir, document))
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
