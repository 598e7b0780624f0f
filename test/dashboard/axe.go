package dashboard

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// axe-core finds accessibility problems. It is not part of the dashboard, and is downloaded for the test.
const (
	axePackage = "axe-core@4.14.1"
	axeFile    = "package/axe.min.js"
	axeSum     = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)

// axe returns the script. It is kept in the user's cache. Without npm the test is skipped.
func axe(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	kept := filepath.Join(cache, "liqo-broker-vk", strings.ReplaceAll(axePackage, "@", "-")+".js")
	if script, err := os.ReadFile(kept); err == nil && sum(script) == axeSum {
		return string(script)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed: nothing to fetch axe-core with")
	}
	dir := t.TempDir()
	pack := exec.CommandContext(t.Context(), npm, "pack", "--silent", "--pack-destination", dir, axePackage)
	pack.Dir = dir
	out, err := pack.CombinedOutput()
	require.NoError(t, err, string(out))
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	script := unpacked(t, found[0], axeFile)
	require.Equal(t, axeSum, sum(script), "%s is not what it was", axePackage)
	require.NoError(t, os.MkdirAll(filepath.Dir(kept), 0o755))
	require.NoError(t, os.WriteFile(kept, script, 0o644))
	return string(script)
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

func unpacked(t *testing.T, tarball, name string) []byte {
	t.Helper()
	f, err := os.Open(tarball)
	require.NoError(t, err)
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	require.NoError(t, err)
	files := tar.NewReader(unzipped)
	for {
		header, err := files.Next()
		require.False(t, errors.Is(err, io.EOF), "%s is not in %s", name, tarball)
		require.NoError(t, err)
		if header.Name == name {
			content, err := io.ReadAll(files)
			require.NoError(t, err)
			return content
		}
	}
}

// accessible runs axe-core on every state of the page, in light and dark, wide and narrow.
func accessible(t *testing.T, browser context.Context, target *Target) {
	script := axe(t)
	for _, scheme := range []string{"light", "dark"} {
		b := newTab(t, browser, target.URL)
		b.prefer(scheme)
		b.open()
		evaluate[chromedp.Void](b, script+"; undefined")
		b.barriers(scheme + ", a stranger")
		b.click(`.account`)
		b.barriers(scheme + ", signing in")
		b.do(chromedp.KeyEvent("\x1b"))
		b.until(`!document.querySelector('dialog')`, "the dialog is closed")
		b.signIn(target.ConsumerToken)
		b.click(`.disclose`)
		b.click(`.flow ~ details summary`)
		b.barriers(scheme + ", a consumer")
		b.openExplanation(target)
		b.barriers(scheme + ", an explanation")
		b.do(chromedp.KeyEvent("\x1b"), chromedp.EmulateViewport(360, 740))
		b.barriers(scheme + ", on a phone")
	}
}

func (b *tab) barriers(where string) {
	b.t.Helper()
	b.still() // The contrast of elements that fade in or out cannot be measured.
	found := evaluate[json.RawMessage](b, `axe.run(document, {resultTypes: ['violations']}).then((all) => all.violations
		.filter(({impact}) => impact === 'serious' || impact === 'critical')
		.map(({id, help, nodes}) => ({
			id, help, nodes: nodes.slice(0, 3).map(({html, failureSummary}) => html + ' ' + failureSummary),
		})))`)
	require.JSONEq(b.t, `[]`, string(found), where)
}
