package e2e

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// hidden returns the first character that controls a terminal, that is invisible, or that is the fifth combining mark
// of one character; "" if there is none. Newlines and tabs are allowed.
func hidden(text string) string {
	marks := 0
	for _, r := range text {
		if !unicode.IsMark(r) {
			marks = 0
		} else if marks++; marks > 4 {
			return string(r)
		}
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return string(r)
		}
	}
	return ""
}

// requirePlain requires that all texts of an object are safe to show.
func requirePlain(t *testing.T, what string, object any) {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	plainJSON(t, what, text)
}

// plainJSON requires that a text is JSON, and that all texts in it are safe to show.
func plainJSON(t *testing.T, what string, text []byte) {
	t.Helper()
	var all any
	require.NoError(t, json.Unmarshal(text, &all), what)
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case string:
			assert.Empty(t, hidden(v), "%s%s: %.300q", what, path, v)
		case []any:
			for _, element := range v {
				walk(path+"[]", element)
			}
		case map[string]any:
			for key, element := range v {
				assert.Empty(t, hidden(key), "%s%s: key %.300q", what, path, key)
				walk(path+"."+key, element)
			}
		}
	}
	walk("", all)
}

// showsPlainText requires that no text of the hostile provider can control a terminal or a browser, wherever it is
// shown: in the API of the broker's cluster, by kubectl broker, in the catalog, and as the error of a kubelet.
func (h *hostile) showsPlainText(t *testing.T, attack string) {
	t.Helper()
	pc := brokeringv1alpha1.ProviderCluster{}
	require.NoError(t, h.broker.Client.Get(t.Context(), client.ObjectKey{Name: h.provider.Name}, &pc))
	requirePlain(t, attack+": ProviderCluster", pc)
	assert.LessOrEqual(t, len(h.reachableMessage(t)), 2048, attack)
	list, err := pods(t.Context(), h.broker, h.namespace)
	require.NoError(t, err)
	requirePlain(t, attack+": pods", list)
	var events corev1.EventList
	require.NoError(t, h.broker.Client.List(t.Context(), &events))
	for i := range events.Items {
		requirePlain(t, attack+": event", events.Items[i])
	}

	kubectl := h.plugin(t)
	for _, args := range [][]string{
		{"get", "providers", "-o", "wide"},
		{"get", "placements", "-A", "-o", "wide"},
		{"explain", "-n", h.namespace, "kept-0", "-o", "wide"},
		{"drain", h.provider.Name, "--timeout=1s"},
		{"get", "providers", "none"},
	} {
		out, errs, _ := kubectl.run(t.Context(), args...)
		require.NotEmpty(t, out+errs)
		assert.Empty(t, hidden(out+errs), "%s: %v: %.2000q", attack, args, out+errs)
	}
	reader := h.reader(t)
	for _, path := range []string{
		"/api/clusters", "/api/v1/providers", "/api/v1/placements", "/api/v1/flows",
		"/api/v1/explain" + query("namespace", h.namespace, "pod", "kept-0"),
	} {
		plainJSON(t, attack+": "+path, reader.must(t, http.StatusOK, http.MethodGet, path, "").body)
	}
}

// reader returns a caller of the catalog who may see everything.
func (h *hostile) reader(t *testing.T) *caller {
	t.Helper()
	addresses, err := h.CatalogAddresses(t.Context())
	require.NoError(t, err)
	h.address = addresses[0]
	return h.newCaller(t, "who sees all", h.token, nil)
}

// logsPlainText requires that no log line of our programs in the broker's cluster has a character that controls a
// terminal or is invisible.
func (h *hostile) logsPlainText(t *testing.T) {
	t.Helper()
	read := 0
	require.NoError(t, filepath.WalkDir(h.Dir(), func(path string, entry fs.DirEntry, err error) error {
		name := filepath.Base(path)
		ours := strings.HasPrefix(name, "liqo-broker") || strings.HasPrefix(name, "liqo-catalog") || strings.HasPrefix(name, "vk-")
		if err != nil || entry.IsDir() || !ours || !strings.HasSuffix(name, ".log") || !strings.Contains(path, "/"+h.broker.Name+"/") {
			return err
		}
		text, err := os.ReadFile(path)
		read++
		for line := range strings.Lines(string(text)) {
			if !assert.Empty(t, hidden(line), "%s: %.500q", name, line) {
				break
			}
		}
		return err
	}))
	assert.GreaterOrEqual(t, read, 3, "the broker, the catalog and the virtual kubelets have logs")
}
