package dashboard

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(t *testing.T, method, target string, header http.Header) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for name, values := range header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func TestHandlerServes(t *testing.T) {
	for name, tc := range map[string]struct {
		method, target string
		status         int
		mediaType      string
	}{
		"the page at the root":          {"GET", "/", 200, "text/html; charset=utf-8"},
		"a module":                      {"GET", "/app.js", 200, "text/javascript; charset=utf-8"},
		"a module of a library":         {"GET", "/vendor/preact.mjs", 200, "text/javascript; charset=utf-8"},
		"the licence of a library":      {"GET", "/vendor/htm.LICENSE.txt", 200, "text/plain; charset=utf-8"},
		"the style":                     {"GET", "/style.css", 200, "text/css; charset=utf-8"},
		"the icon":                      {"HEAD", "/favicon.svg", 200, "image/svg+xml"},
		"nothing at another path":       {"GET", "/admin", 404, "text/plain; charset=utf-8"},
		"nothing for a directory":       {"GET", "/vendor/", 404, "text/plain; charset=utf-8"},
		"nothing outside of its files":  {"GET", "/../handler.go", 404, "text/plain; charset=utf-8"},
		"nothing to who wants to write": {"POST", "/", 405, "text/plain; charset=utf-8"},
	} {
		t.Run(name, func(t *testing.T) {
			response := get(t, tc.method, tc.target, nil)
			require.Equal(t, tc.status, response.StatusCode)
			require.Equal(t, tc.mediaType, response.Header.Get("Content-Type"))
			if tc.status == 200 {
				require.Equal(t, contentSecurityPolicy, response.Header.Get("Content-Security-Policy"))
				require.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
			}
		})
	}
}

func TestAFileThatIsStillTheSameIsNotSentAgain(t *testing.T) {
	first := get(t, "GET", "/app.js", nil)
	etag := first.Header.Get("ETag")
	require.Regexp(t, `^W/"[0-9a-f]{32}"$`, etag)
	require.Equal(t, "no-cache", first.Header.Get("Cache-Control"))
	require.Equal(t, http.StatusNotModified, get(t, "GET", "/app.js", http.Header{"If-None-Match": {etag}}).StatusCode)
	require.Equal(t, http.StatusOK, get(t, "GET", "/style.css", http.Header{"If-None-Match": {etag}}).StatusCode)
}

func TestFilesAreCompressedForClientsThatAcceptGzip(t *testing.T) {
	plain, err := static.ReadFile("static/app.js")
	require.NoError(t, err)
	for accepted, want := range map[string]bool{
		"": false, "gzip": true, "deflate, gzip;q=1.0": true, "GZIP; q=0.5, br": true, "gzip;q=0": false, "gzip; q=0.0": false, "br": false,
	} {
		response := get(t, "GET", "/app.js", http.Header{"Accept-Encoding": {accepted}})
		require.Equal(t, "Accept-Encoding", response.Header.Get("Vary"))
		body := io.Reader(response.Body)
		if want {
			require.Equal(t, "gzip", response.Header.Get("Content-Encoding"), accepted)
			body, err = gzip.NewReader(body)
			require.NoError(t, err)
		} else {
			require.Empty(t, response.Header.Get("Content-Encoding"), accepted)
		}
		got, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, string(plain), string(got))
	}
}

// The libraries are the released files that vendor.sh names, except for its own changes.
func TestLibrariesAreAsReleased(t *testing.T) {
	sums := map[string]string{
		"preact.mjs":         "225d7a773766e6fb2cfcc45274fe41d2059f5782f3f2c4569aa5132a2d3a2902",
		"hooks.mjs":          "13518e8899847145604866b14612f994ed70d894a423b64694b6e764d7b956c9",
		"htm.mjs":            "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4",
		"preact.LICENSE.txt": "1fe6958409c8c257a70c587a18b6f7f412b179b456630790d30b2ec9a8e4b7d4",
		"htm.LICENSE.txt":    "740725f7252e750af735d0028cc534970772f513331e9f68150fede8fb3ce00f",
		"VERSIONS.txt":       "b2835bf6f7914888448533c54050e58442b190a1192c88317af92a38ff95c46f",
	}
	entries, err := os.ReadDir("static/vendor")
	require.NoError(t, err)
	require.Len(t, entries, len(sums))
	for _, entry := range entries {
		content, err := os.ReadFile(path.Join("static/vendor", entry.Name()))
		require.NoError(t, err)
		sum := sha256.Sum256(content)
		require.Equal(t, sums[entry.Name()], hex.EncodeToString(sum[:]), entry.Name())
	}
}

var (
	imported = regexp.MustCompile(`(?m)^(?:import|export)[^;]* from '([^']+)'|(?:href|src)="([^"#]+)"`)
	outside  = regexp.MustCompile(`https?://|//[a-z0-9-]+\.[a-z]`)
	inline   = regexp.MustCompile(`<script>|<style|\sstyle=|\son[a-z]+="|` +
		`dangerouslySetInnerHTML|\.innerHTML|document\.write|\beval\(`)
)

// This test finds violations of the content policy before a browser does, with their place.
func TestFilesNeedNothingButEachOther(t *testing.T) {
	files := load()
	count := 0
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(name, "static/vendor/") {
			return err
		}
		count++
		content, err := static.ReadFile(name)
		require.NoError(t, err)
		text := strings.ReplaceAll(string(content), `xmlns="http://www.w3.org/2000/svg"`, "")
		require.Empty(t, outside.FindString(text), "%s names another place", name)
		require.Empty(t, inline.FindString(text), "%s has what the policy refuses", name)
		for _, match := range imported.FindAllStringSubmatch(text, -1) {
			wanted := path.Join("/", strings.TrimPrefix(path.Dir(name), "static"), match[1]+match[2])
			require.Contains(t, files, wanted, "%s asks for a file that is not there", name)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, count, 15)
}
