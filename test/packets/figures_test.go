package packets

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// measuredRequests is the number of requests whose median is the latency. sendingTime is how long bytes are
	// counted, and senders the number of connections that send them.
	measuredRequests = 100
	sendingTime      = 3 * time.Second
	senders          = 4
	// bodySize is less than net/http's server reads of a body that its handler does not read (256 KiB).
	bodySize = 200 << 10
)

// figure has the measurements of one path.
type figure struct {
	path string
	// latency is a request's latency over an existing connection.
	latency time.Duration
	// throughput is in bytes a second.
	throughput float64
}

// measure records the latency and the throughput of a path from a pod to an address, unless the tests are short.
func (f *federation) measure(t *testing.T, path string, from *http.Client, address string) {
	t.Helper()
	if testing.Short() {
		return
	}
	transport := from.Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives, transport.MaxIdleConnsPerHost = false, senders
	defer transport.CloseIdleConnections()
	kept := &http.Client{Transport: transport}
	latencies := make([]time.Duration, 0, measuredRequests)
	for range measuredRequests {
		began := time.Now()
		_, err := ask(t.Context(), kept, address)
		require.NoError(t, err)
		latencies = append(latencies, time.Since(began))
	}
	slices.Sort(latencies)
	f.figures = append(f.figures, figure{path, latencies[len(latencies)/2], throughput(t, kept, address)})
}

// throughput sends bodies over several connections, and returns how many bytes arrive each second.
func throughput(t *testing.T, from *http.Client, address string) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sendingTime+10*time.Second)
	defer cancel()
	var sent atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, senders)
	began := time.Now()
	for range senders {
		all.Go(func() {
			for time.Since(began) < sendingTime {
				if err := send(ctx, from, address); err != nil {
					errs <- err
					return
				}
				sent.Add(bodySize)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	close(errs)
	require.NoError(t, <-errs)
	return float64(sent.Load()) / took.Seconds()
}

func send(ctx context.Context, from *http.Client, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address, bytes.NewReader(make([]byte, bodySize)))
	if err != nil {
		return err
	}
	resp, err := from.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// reportFigures logs each path beside the last measured one, which is one hop with Liqo's own virtual kubelet.
func (f *federation) reportFigures(t *testing.T) {
	t.Helper()
	if len(f.figures) == 0 {
		return
	}
	stock := f.figures[len(f.figures)-1]
	for _, g := range f.figures {
		t.Logf("%-32s latency %7s (%.2f), %6.1f MB/s (%.2f)", g.path, g.latency.Round(10*time.Microsecond),
			float64(g.latency)/float64(stock.latency), g.throughput/1e6, g.throughput/stock.throughput)
	}
}
