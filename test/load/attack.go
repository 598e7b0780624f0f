package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// mostOutstanding is the maximum number of requests that wait for an answer. With more, the catalog does not keep up.
const mostOutstanding = 1000

// measured has the sorted durations of the requests, and the errors.
type measured struct {
	took   []time.Duration
	byKind map[string][]time.Duration
	bytes  int64
	faults map[string]int
}

// quantile returns the quantile of sorted durations at the given share.
func quantile(took []time.Duration, share float64) time.Duration {
	return took[min(int(share*float64(len(took))), len(took)-1)]
}

// attack sends requests at fixed times, independent of the answers, for a while. A request's duration is measured from
// the time when it was due, so that delays by other requests are included.
func (l *load) attack(ctx context.Context, duration time.Duration) (*measured, error) {
	var (
		mu    sync.Mutex
		calls sync.WaitGroup
		m     = &measured{faults: map[string]int{}, byKind: map[string][]time.Duration{}}
		room  = make(chan struct{}, mostOutstanding)
		began = time.Now()
	)
	defer calls.Wait()
	for i := 0; ; i++ {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(l.rate))
		if due.Sub(began) >= duration {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(due)):
		}
		select {
		case room <- struct{}{}:
		default:
			return nil, fmt.Errorf("%d requests wait for an answer", mostOutstanding)
		}
		calls.Go(func() {
			defer func() { <-room }()
			kind, path := l.path(i)
			n, fault := l.ask(ctx, path)
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			m.took, m.bytes = append(m.took, took), m.bytes+n
			m.byKind[kind] = append(m.byKind[kind], took)
			if fault != "" {
				m.faults[fault]++
			}
		})
	}
	calls.Wait()
	slices.Sort(m.took)
	for _, took := range m.byKind {
		slices.Sort(took)
	}
	return m, nil
}

// ask returns the number of received bytes, and the fault of the answer.
func (l *load) ask(ctx context.Context, path string) (int64, string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.address+path, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+l.token)
	request.Header.Set("Accept-Encoding", "gzip") // The client does not decompress then.
	response, err := l.client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	n, err := io.Copy(io.Discard, response.Body)
	switch {
	case err != nil:
		return n, err.Error()
	case response.StatusCode != http.StatusOK:
		return n, response.Status
	}
	return n, ""
}

// nothing is the kind of a request that costs almost nothing, for a file of a few bytes. Its duration is the machine's
// current latency, and the other kinds are compared with it.
const nothing = "a file, for comparison"

// path returns the kind and the path of the n-th request: the parts of the dashboard's requests in turn. Every 50th is
// an explanation, which costs the most.
func (l *load) path(n int) (kind, path string) {
	if n%20 == 12 {
		return nothing, "/favicon.svg"
	}
	if n%50 == 49 {
		return "an explanation", "/api/v1/explain?namespace=" + consumerName(n%l.placements) + "&pod=" + podName(n%l.placements)
	}
	provider, consumer := url.QueryEscape(providerName(n*7%l.providers)), url.QueryEscape(consumerName(n/10))
	switch n % 10 {
	case 0, 1, 2:
		return "50 providers of a region", fmt.Sprintf("/api/v1/providers?limit=50&region=region-%d", n%7)
	case 3:
		return "100 providers", "/api/v1/providers?limit=100"
	case 4, 5:
		return "one provider", "/api/v1/providers/" + provider
	case 6:
		return "50 placements of a provider", "/api/v1/placements?limit=50&provider=" + provider
	case 7:
		return "100 placements of a consumer", "/api/v1/placements?limit=100&consumer=" + consumer
	case 8:
		return "a history", "/api/v1/providers/" + provider + "/history"
	}
	return "the flows of a consumer", "/api/v1/flows?consumer=" + consumer
}
