package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
	"github.com/capacitorset/liqo-broker-vk/test/collector"
	"github.com/capacitorset/liqo-broker-vk/test/exposition"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// traced collects the spans of a federation until the test ends. It returns the arguments that make processes send
// their spans.
func traced(t *testing.T) (*collector.Collector, []string) {
	t.Helper()
	spans, err := collector.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, spans.Close()) })
	return spans, []string{"--tracing-endpoint=" + spans.Endpoint(), "--tracing-insecure=true"}
}

// trace checks that one trace covers a pod from its binding until it runs, with spans of the broker and of a virtual
// kubelet.
func (c *chain) trace(t *testing.T) {
	consumer := c.consumers[0]
	ns := c.offload(t, consumer)
	c.pod(t, consumer, ns, "followed", "true")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 1) })
	annotation := podOf(t, c.broker, consumer.RemoteNamespace(ns), "followed").Annotations[brokeringv1alpha1.TraceparentAnnotation]
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	require.NoError(t, c.spans.Wait(ctx, collector.Way(annotation)))
}

// quiet returns the metrics that appear only after rare events: an object that cannot be reflected, a request that is
// rejected.
func quiet() []string {
	return []string{"liqo_virtual_kubelet_reflection_error_counter", "liqo_catalog_refusals_total"}
}

// metrics checks that every metric that the rules and the dashboard of deploy/observability use exists, and that all
// existing metrics are documented. With SCRAPES=directory it writes the scrapes there, two of each process, for
// test/observability to show.
func (c *chain) metrics(t *testing.T) {
	consumer := c.consumers[0]
	ns := c.offload(t, consumer)
	c.pod(t, consumer, ns, "counted", "true")
	eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 1) })
	c.shownToAStranger(t)
	for _, selected := range []bool{false, true} { // This creates a policy.
		require.NoError(t, orchestrator.Set(t.Context(), c.broker.Client, consumer.Name, "provider1", selected))
	}
	slice := c.ask(t, consumer, "measured",
		map[corev1.ResourceName]string{corev1.ResourceCPU: "1", corev1.ResourceMemory: "1Gi", corev1.ResourcePods: "10"})
	eventually(t, patient, func(ctx context.Context) error { return c.offered(ctx, slice, "1") })

	eventually(t, patient, func(ctx context.Context) error {
		scrapes, err := c.scrapes(ctx)
		if err != nil {
			return err
		}
		return exposition.Check("../../docs/metrics.md", scrapes, quiet()...)
	})
	if dir := os.Getenv("SCRAPES"); dir != "" {
		c.leave(t, dir, "1")
		c.pod(t, consumer, ns, "more", "true")
		eventually(t, patient, func(ctx context.Context) error { return c.rightlyShown(ctx, consumer, ns, 2) })
		c.shownToAStranger(t)
		c.leave(t, dir, "2")
	}
}

// shownToAStranger sends an anonymous request to the catalog.
func (c *chain) shownToAStranger(t *testing.T) {
	t.Helper()
	_, err := c.fetch(t.Context(), "https://"+c.CatalogAddress()+"/api/v1/providers")
	require.NoError(t, err)
}

// targets returns the replicas of every component that has metrics.
func (c *chain) targets() (map[string][]string, error) {
	components := map[string][]string{
		exposition.Broker:  {brokerComponent},
		exposition.Catalog: {sandbox.Broker + "/" + sandbox.CatalogComponent},
	}
	for _, provider := range c.providers {
		components[exposition.VirtualKubelet] = append(components[exposition.VirtualKubelet], sandbox.Broker+"/vk-"+provider.Name)
	}
	for _, consumer := range c.consumers {
		components[exposition.VirtualKubelet] = append(components[exposition.VirtualKubelet], consumer.Name+"/vk-"+sandbox.Broker)
	}
	all := map[string][]string{}
	for component, names := range components {
		for _, name := range names {
			replicas, err := c.Replicas(name)
			if err != nil {
				return nil, err
			}
			all[component] = append(all[component], replicas...)
		}
	}
	return all, nil
}

// scrapes returns the answers of /metrics, by component.
func (c *chain) scrapes(ctx context.Context) (map[string][]string, error) {
	targets, err := c.targets()
	if err != nil {
		return nil, err
	}
	scrapes := map[string][]string{}
	for component, replicas := range targets {
		for _, replica := range replicas {
			text, err := c.scrape(ctx, replica)
			if err != nil {
				return nil, err
			}
			scrapes[component] = append(scrapes[component], text)
		}
	}
	return scrapes, nil
}

func (c *chain) scrape(ctx context.Context, replica string) (string, error) {
	address, err := c.Address(replica, "metrics")
	if err != nil {
		address, err = c.Address(replica, "catalog-metrics")
	}
	if err != nil {
		return "", err
	}
	return c.fetch(ctx, "http://"+address+"/metrics")
}

// fetch reads a page. All servers are on loopback, with self-signed certificates.
func (c *chain) fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(text), nil
}

// leave writes a scrape of each process as JOB+CLUSTER+POD+turn.prom.
func (c *chain) leave(t *testing.T, dir, turn string) {
	t.Helper()
	targets, err := c.targets()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o750))
	for component, replicas := range targets {
		for _, replica := range replicas {
			text, err := c.scrape(t.Context(), replica)
			require.NoError(t, err)
			name := strings.Join([]string{component, strings.ReplaceAll(replica, "/", "+"), turn}, "+") + ".prom"
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
}
