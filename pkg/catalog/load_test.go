package catalog

import (
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// loadPerSecond is the number of requests a second, sent without waiting for previous answers.
const loadPerSecond = 200

// BenchmarkLoad is a federation of 1,000 providers and 10,000 pods, whose catalog gets 200 requests a second from
// strangers, a consumer and an operator; -benchtime=6000x lasts 30 seconds. It measures from the time when a request
// was due.
func BenchmarkLoad(b *testing.B) {
	api := newAPIServer(b, federationOf(1000, 20, 10000)...)
	url, _ := running(b, api)
	mix := []call{
		{path: "/api/v1/providers"},
		{path: "/api/v1/providers?limit=100&ready=true"},
		{path: "/api/v1/providers/p7"},
		{path: "/api/v1/providers/p7/history"},
		{path: "/api/v1/providers?q=region-3"},
		{path: "/api/v1/providers?consumer=c1", token: "people-c1"},
		{path: "/api/v1/placements?limit=100", token: "people-c1"},
		{path: "/api/v1/placements?limit=100", token: "operator"},
		{path: "/api/v1/flows", token: "operator"},
		{path: "/api/v1/me", token: "people-c1"},
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	defer transport.CloseIdleConnections()
	took := make([][]time.Duration, len(mix))
	var mu sync.Mutex
	var wg sync.WaitGroup
	ask := func(n int, due time.Time) {
		request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url+mix[n].path, http.NoBody)
		require.NoError(b, err)
		request.Header.Set("Accept-Encoding", "gzip")
		if mix[n].token != "" {
			request.Header.Set("Authorization", "Bearer "+mix[n].token)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			b.Error(err)
			return
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
			b.Errorf("%s: %d, %v", mix[n].path, response.StatusCode, err)
		}
		mu.Lock()
		defer mu.Unlock()
		took[n] = append(took[n], time.Since(due))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	begin := time.Now()
	for n := range b.N {
		due := begin.Add(time.Duration(n) * time.Second / loadPerSecond)
		time.Sleep(time.Until(due))
		wg.Go(func() { ask(n%len(mix), due) })
	}
	wg.Wait()
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)

	var all []time.Duration
	for n := range mix {
		slices.Sort(took[n])
		if len(took[n]) > 0 {
			b.Logf("%-50s p50 %8v  p99 %8v", mix[n].path, quantile(took[n], 50).Round(10*time.Microsecond),
				quantile(took[n], 99).Round(10*time.Microsecond))
		}
		all = append(all, took[n]...)
	}
	slices.Sort(all)
	b.ReportMetric(quantile(all, 50).Seconds()*1000, "ms/p50")
	b.ReportMetric(quantile(all, 99).Seconds()*1000, "ms/p99")
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/(1<<20), "MB-grown")
	b.ReportMetric(float64(after.HeapAlloc)/(1<<20), "MB-heap")
}

func quantile(sorted []time.Duration, percent int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}
