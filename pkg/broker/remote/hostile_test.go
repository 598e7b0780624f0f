package remote

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted/untrustedtest"
)

// A provider that is ready answers lists as it likes.
func TestAHostileListCostsLittle(t *testing.T) {
	const (
		mostMemory = 48 << 20
		deadline   = 2 * time.Second
		atMost     = deadline + 3*time.Second
	)
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	for name, attack := range untrustedtest.Lists() {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/readyz" {
					_, _ = io.WriteString(w, "ok")
					return
				}
				attack(w, r)
			}))
			defer server.Close()
			provider := connected(t, server)
			_, err := provider.Probe(t.Context())
			require.NoError(t, err)
			for call, ask := range map[string]func(ctx context.Context) error{
				"ShadowPods": func(ctx context.Context) error { return allShadowPods(ctx, provider, func(*ShadowPod) {}) },
				"few pods": func(ctx context.Context) error {
					_, err := provider.Forwarded(ctx, "p1", "ns", []string{"pod"})
					return err
				},
				"pods": func(ctx context.Context) error {
					_, err := provider.Forwarded(ctx, "p1", "ns", manyNames())
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				began := time.Now()
				peak := peakDuring(func() { err = ask(ctx) })
				cancel()
				took := time.Since(began)
				t.Logf("%s: %d MiB, %s: %.200v", call, peak>>20, took.Round(time.Millisecond), err)
				assert.Less(t, peak, int64(mostMemory), call)
				assert.Less(t, took, atMost, call)
				if name != untrustedtest.HugeQuantities {
					require.Error(t, err, call)
				}
			}
		})
	}
}

// manyNames are more than are asked for one by one.
func manyNames() (names []string) {
	for i := range few + 1 {
		names = append(names, fmt.Sprint("pod-", i))
	}
	return names
}

// allShadowPods reads all ShadowPods of a namespace.
func allShadowPods(ctx context.Context, of *Connection, each func(*ShadowPod)) error {
	for at := (untrusted.Progress{}); ; {
		if done, err := of.ShadowPods(ctx, "ns", &at, each); done || err != nil {
			return err
		}
	}
}

// peakDuring returns how much the heap grew at most meanwhile (bytes).
func peakDuring(do func()) (most int64) {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	before := int64(memory.HeapAlloc)
	done := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
			runtime.ReadMemStats(&memory)
			most = max(most, int64(memory.HeapAlloc)-before)
		}
	})
	do()
	close(done)
	sampling.Wait()
	return most
}
