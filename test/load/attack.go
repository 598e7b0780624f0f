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

// mostOutstanding is how many requests may wait for an answer: with more, the catalog does not keep up.
const mostOutstanding = 1000

// measured is what requests took, in order of length, and what went wrong.
type measured struct {
	took   []time.Duration
	bytes  int64
	faults map[string]int
}

// quantile is what that share of the requests took at most.
func (m *measured) quantile(share float64) time.Duration {
	return m.took[min(int(share*float64(len(m.took))), len(m.took)-1)]
}

// attack asks, at fixed times whatever the answers take, for a while; each is called every second. A request counts from
// when it was due, so that one that is held up by others is not shown as quick.
func (l *load) attack(ctx context.Context, duration time.Duration, each func()) (*measured, error) {
	var (
		mu    sync.Mutex
		calls sync.WaitGroup
		m     = &measured{faults: map[string]int{}}
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
			n, fault := l.ask(ctx, l.path(i))
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			m.took, m.bytes = append(m.took, took), m.bytes+n
			if fault != "" {
				m.faults[fault]++
			}
		})
		if each != nil && i%l.rate == 0 {
			each()
		}
	}
	calls.Wait()
	slices.Sort(m.took)
	return m, nil
}

// ask returns how many bytes came, and what was wrong with the answer.
func (l *load) ask(ctx context.Context, path string) (int64, string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.address+path, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+l.token)
	request.Header.Set("Accept-Encoding", "gzip") // Which it does not unpack then.
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

// path is what is asked: what the dashboard asks, each time another part of it. Every 50th is an explanation, which costs
// the most.
func (l *load) path(n int) string {
	if n%50 == 49 {
		return "/api/v1/explain?namespace=" + consumerName(n%l.placements) + "&pod=" + podName(n%l.placements)
	}
	provider, consumer := url.QueryEscape(providerName(n*7%l.providers)), url.QueryEscape(consumerName(n/10))
	switch n % 10 {
	case 0, 1, 2:
		return fmt.Sprintf("/api/v1/providers?limit=50&region=region-%d", n%7)
	case 3:
		return "/api/v1/providers?limit=100"
	case 4, 5:
		return "/api/v1/providers/" + provider
	case 6:
		return "/api/v1/placements?limit=50&provider=" + provider
	case 7:
		return "/api/v1/placements?limit=100&consumer=" + consumer
	case 8:
		return "/api/v1/providers/" + provider + "/history"
	}
	return "/api/v1/flows?consumer=" + consumer
}
