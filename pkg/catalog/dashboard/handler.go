// Package dashboard is the page that shows the federation to people: files for the browser, which read the catalog's
// API and follow its events. There is no build step and no external source: the files in static are served as they are.
package dashboard

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// contentSecurityPolicy allows only what the page needs: scripts and styles from the files of this package, requests to
// its own origin, and no HTML parsed from text.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

//go:embed static
var static embed.FS

// types are the media types of the served files, so that they do not depend on the machine.
func types() map[string]string {
	return map[string]string{
		".html": "text/html; charset=utf-8",
		".css":  "text/css; charset=utf-8",
		".js":   "text/javascript; charset=utf-8",
		".mjs":  "text/javascript; charset=utf-8",
		".svg":  "image/svg+xml",
		".txt":  "text/plain; charset=utf-8",
	}
}

// file is a served file.
type file struct {
	name, mediaType, etag string
	content               []byte
	// compressed is the content by gzip, made once; nil if it is no shorter.
	compressed []byte
}

// Handler serves the dashboard at /, and 404 for every other path. A browser may cache the files but revalidates them
// each time, so that a page never mixes modules of two versions for long.
func Handler() http.Handler {
	files := load()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		f, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		header := w.Header()
		header.Set("Content-Type", f.mediaType)
		header.Set("ETag", f.etag)
		header.Set("Cache-Control", "no-cache")
		header.Set("Content-Security-Policy", contentSecurityPolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Vary", "Accept-Encoding")
		content := f.content
		if f.compressed != nil && acceptsGzip(r.Header.Values("Accept-Encoding")) {
			header.Set("Content-Encoding", "gzip")
			content = f.compressed
		}
		http.ServeContent(w, r, f.name, time.Time{}, bytes.NewReader(content))
	})
}

// acceptsGzip reports whether a client accepts gzip with a weight other than zero (RFC 9110, 12.5.3).
func acceptsGzip(lists []string) bool {
	for coding := range strings.SplitSeq(strings.Join(lists, ","), ",") {
		name, weight, weighted := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			_, q, _ := strings.Cut(weight, "=")
			value, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return !weighted || err == nil && value > 0
		}
	}
	return false
}

// load reads the files by their path in URLs. Files without a media type are not for browsers.
func load() map[string]file {
	known, files := types(), map[string]file{}
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || known[path.Ext(name)] == "" {
			return err
		}
		content, err := static.ReadFile(name)
		if err != nil {
			return err
		}
		compressed, err := compress(content)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		files[strings.TrimPrefix(name, "static")] = file{
			name: path.Base(name), mediaType: known[path.Ext(name)], content: content, compressed: compressed,
			// A weak one, because the same content may be compressed or not.
			etag: `W/"` + hex.EncodeToString(sum[:16]) + `"`,
		}
		return nil
	})
	if err != nil {
		panic("dashboard: the files of the binary: " + err.Error()) // Files in memory: reading cannot fail.
	}
	files["/"] = files["/index.html"]
	return files
}

// compress returns nil if the content does not become shorter.
func compress(content []byte) ([]byte, error) {
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if compressed.Len() >= len(content) {
		return nil, nil
	}
	return compressed.Bytes(), nil
}
