package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// warmUp is how long requests are sent before they are counted.
const warmUp = 5 * time.Second

// load is a run.
type load struct {
	*sandbox.Sandbox
	options
	cluster *sandbox.Cluster
	say     func(format string, args ...any)

	client         *http.Client
	address, token string
}

func (l *load) run(ctx context.Context, out io.Writer) error {
	if err := l.cluster.ApplyManifests(ctx, "crds"); err != nil {
		return err
	}
	if err := l.populate(ctx); err != nil {
		return err
	}
	if err := l.start(ctx); err != nil {
		return err
	}
	if err := l.complete(ctx); err != nil {
		return err
	}
	// The other clusters are not needed.
	for _, other := range []string{sandbox.Consumer(1), sandbox.Provider(1)} {
		if err := l.Freeze(other); err != nil {
			return err
		}
		defer func() { _ = l.Resume(other) }()
	}
	changing, stop := context.WithCancel(ctx)
	defer stop()
	group, changing := errgroup.WithContext(changing)
	group.Go(func() error { return l.change(changing) })
	if _, err := l.attack(changing, warmUp); err != nil {
		return errors.Join(err, group.Wait())
	}
	var used []usage
	group.Go(func() (err error) {
		used, err = usageOf(changing, l.replicas())
		return err
	})
	got, err := l.attack(changing, l.duration)
	stop()
	if err := errors.Join(err, group.Wait()); err != nil {
		return err
	}
	err = l.report(out, got, used)
	if l.streams > 0 {
		err = errors.Join(err, l.measureStreams(ctx, out))
	}
	return err
}

// start installs the catalog, and creates an operator account for the requests.
func (l *load) start(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sandbox.BrokerComponent}}
	if err := l.cluster.Client.Create(ctx, ns); err != nil {
		return err
	}
	if err := l.cluster.ApplyManifests(ctx, "catalog.yaml"); err != nil {
		return err
	}
	var err error
	if l.token, err = l.cluster.Account(ctx, ns.Name, "operator", "cluster-admin"); err != nil {
		return err
	}
	addresses, err := l.CatalogAddresses(ctx)
	if err != nil {
		return err
	}
	l.address = "https://" + addresses[0]
	return nil
}

// complete checks that the catalog shows all objects.
func (l *load) complete(ctx context.Context) error {
	for path, want := range map[string]int{"/api/v1/providers?limit=1": l.providers, "/api/v1/placements?limit=1": l.placements} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.address+path, http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+l.token)
		response, err := l.client.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s: %s %w", path, response.Status, body, err)
		}
		var page api.Page
		if err := json.Unmarshal(body, &page); err != nil {
			return err
		}
		if page.Total != want {
			return fmt.Errorf("GET %s: %d in all, want %d", path, page.Total, want)
		}
	}
	return nil
}

func insecure() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} // On loopback, with a self-signed certificate.
}

// replicas returns the processes of the catalog.
func (l *load) replicas() []int {
	var pids []int
	status := l.Status()
	for i := range status.Processes {
		if p := &status.Processes[i]; p.Component == sandbox.CatalogComponent {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

func (l *load) report(out io.Writer, m *measured, used []usage) error {
	first, last := heldBy(used)
	ms := func(share float64) string {
		return inMilliseconds(quantile(m.took, share))
	}
	fmt.Fprintf(out, "catalog: %d providers, %d placements, %d changes a second; %d requests, %d a second, over HTTPS\n",
		l.providers, l.placements, l.changes, len(m.took), l.rate)
	fmt.Fprintf(out, "  p50 %s, p90 %s, p99 %s, longest %s; %.1f KB an answer\n", ms(0.5), ms(0.9), ms(0.99), ms(1),
		float64(m.bytes)/float64(len(m.took))/1024)
	fmt.Fprintf(out, "  memory (RSS) %.0f MB at the beginning, %.0f MB at the end; %.2f CPUs, both replicas together\n",
		first, last, busy(used))
	for _, kind := range slices.Sorted(maps.Keys(m.byKind)) {
		took := m.byKind[kind]
		fmt.Fprintf(out, "  %5d × %s: p50 %s, p99 %s\n", len(took), kind, inMilliseconds(quantile(took, 0.5)),
			inMilliseconds(quantile(took, 0.99)))
	}
	var faults []error
	if len(m.faults) > 0 {
		faults = append(faults, fmt.Errorf("not all succeeded: %v", m.faults))
	}
	if p99 := quantile(m.took, 0.99); p99 > l.p99 {
		faults = append(faults, fmt.Errorf("the 99th percentile of the latency is %s, want at most %s", p99, l.p99))
	}
	if last > l.growth*first {
		faults = append(faults, fmt.Errorf("the memory grew by a factor of %.2f", last/first))
	}
	return errors.Join(faults...)
}

func inMilliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
