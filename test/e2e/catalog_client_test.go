package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// caller is a client of the catalog: anonymous, with a token, or with a client certificate.
type caller struct {
	name   string
	base   string
	token  string
	client *http.Client
	tape   *tape
}

// tape records all answers to callers, to search them for secrets.
type tape struct {
	mu      sync.Mutex
	answers map[string][][]byte // By caller; guarded by mu.
}

func (t *tape) add(caller string, answer []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers[caller] = append(t.answers[caller], answer)
}

// of returns all answers to the callers whose names begin with a prefix.
func (t *tape) of(prefix string) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all [][]byte
	for name, answers := range t.answers {
		if strings.HasPrefix(name, prefix) {
			all = append(all, answers...)
		}
	}
	return bytes.Join(all, []byte("\n"))
}

// answer is an answer of the catalog.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// newCaller returns a caller of a catalog at HOST:PORT. The sandbox's catalog has a self-signed certificate.
func (c *catalogued) newCaller(t *testing.T, name, token string, identity *rest.Config) *caller {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // A process of ours on loopback.
	if identity != nil {
		pair, err := tls.X509KeyPair(identity.CertData, identity.KeyData)
		require.NoError(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{
		name: name, base: "https://" + c.address, token: token, tape: c.tape,
		client: &http.Client{Transport: transport, Timeout: 20 * time.Second},
	}
}

// ask sends a request; a body that is not empty is JSON.
func (c *caller) ask(ctx context.Context, method, path, body string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Accept", "*/*") // curl sends this header.
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(response.Body, 32<<20))
	c.tape.add(c.name, got)
	return answer{status: response.StatusCode, header: response.Header, body: got}, err
}

// must sends a request and requires a status.
func (c *caller) must(t *testing.T, want int, method, path, body string) answer {
	t.Helper()
	got, err := c.ask(t.Context(), method, path, body)
	require.NoError(t, err)
	require.Equal(t, want, got.status, "%s %s as %s: %s", method, path, c.name, got.body)
	if want >= http.StatusBadRequest {
		assert.Equal(t, "application/problem+json", got.header.Get("Content-Type"), "%s %s: %s", method, path, got.body)
	}
	return got
}

// read decodes the answer to a GET.
func read[T any](ctx context.Context, c *caller, path string) (T, error) {
	var into T
	got, err := c.ask(ctx, http.MethodGet, path, "")
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("GET %s as %s: %d: %s", path, c.name, got.status, got.body)
	}
	if err != nil {
		return into, err
	}
	return into, json.Unmarshal(got.body, &into)
}

func query(pairs ...string) string {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return "?" + values.Encode()
}
