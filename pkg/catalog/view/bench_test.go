package view

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view/podindex"
)

// largeFed has 1,000 providers and 10,000 placements of 20 consumers in 100 namespaces; every tenth pod waits.
func largeFed() *fed {
	f := newFed(Config{})
	for i := range 1000 {
		f.sees(cluster(fmt.Sprintf("provider-%03d", i), func(pc *v1alpha1.ProviderCluster) {
			pc.Spec.Attributes = map[string]string{"region": fmt.Sprint("region-", i%7), "price": "0.042"}
		}))
	}
	for i := range 100 {
		f.sees(namespaceOf(fmt.Sprintf("team-%02d", i), fmt.Sprint("consumer-", i%20)))
	}
	for i := range 10_000 {
		pod := podIn(fmt.Sprintf("team-%02d", i%100), fmt.Sprintf("web-%05d", i))
		if i%10 != 0 {
			assigned(fmt.Sprintf("provider-%03d", i*7%1000), 84)(pod)
		}
		f.sees(pod)
	}
	return f
}

func BenchmarkPlacements(b *testing.B) {
	f := largeFed()
	first, err := f.Placements(PlacementQuery{Scope: Scope{All: true}, Page: Page{Limit: 5000}})
	require.NoError(b, err)
	for name, q := range map[string]PlacementQuery{
		"first page":              {},
		"page in the middle":      {Page: Page{Continue: first.Continue}},
		"of a provider":           {Provider: "provider-007"},
		"of a consumer":           {Consumer: "consumer-7"},
		"in a namespace":          {Namespace: "team-77"},
		"of a consumer, in phase": {Consumer: "consumer-7", Phase: "Running"},
		"waiting":                 {Waiting: true},
		"text":                    {Text: "web-09"},
	} {
		b.Run(name, func(b *testing.B) {
			q.Scope, q.Limit = Scope{All: true}, 100
			b.ReportAllocs()
			for b.Loop() {
				if list, _ := f.Placements(q); len(list.Items) == 0 {
					b.Fatal("nothing found")
				}
			}
		})
	}
}

func BenchmarkProviders(b *testing.B) {
	f := largeFed()
	f.sees(selectionOf("consumer-7", v1alpha1.SelectAllBut, "provider-003"))
	for name, q := range map[string]ProviderQuery{
		"first page":      {},
		"as a consumer":   {Consumer: "consumer-7"},
		"ready in region": {Region: "region-3", Ready: ptr.To(true)},
		"text":            {Text: "provider-9"},
	} {
		b.Run(name, func(b *testing.B) {
			q.Limit = 100
			b.ReportAllocs()
			for b.Loop() {
				if list, _ := f.Providers(q); len(list.Items) != 100 {
					b.Fatal("no full page found")
				}
			}
		})
	}
}

func BenchmarkFlows(b *testing.B) {
	f := largeFed()
	for name, s := range map[string]Scope{"of all": {All: true}, "of a consumer": {Consumer: "consumer-7"}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.Flows(s)
			}
		})
	}
}

// One change of a pod is sent to 100 streams.
func BenchmarkAChange(b *testing.B) {
	f := largeFed()
	for i := range 100 {
		s := f.Subscribe(Scope{Consumer: fmt.Sprint("consumer-", i%20)}, "")
		defer s.Close()
		s.takeChanges()
	}
	pods := [2]func(int){}
	for i := range pods {
		pods[i] = func(n int) {
			f.sees(podIn(fmt.Sprintf("team-%02d", n%100), fmt.Sprintf("web-%05d", n%10_000), assigned("provider-001", i)))
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		pods[i/10_000%2](i)
	}
}

func BenchmarkTheStream(b *testing.B) {
	f := largeFed()
	s := f.Subscribe(Scope{All: true}, "")
	defer s.Close()
	s.takeChanges()
	b.ReportAllocs()
	for b.Loop() {
		for i := range 100 {
			f.publishPlacement(nil, podindex.NewPod(podIn("team-01", fmt.Sprintf("web-%05d", 100*i+1)), ""))
		}
		if len(s.takeChanges()) != 100 {
			b.Fatal("not all changes are received")
		}
	}
}

// BenchmarkStreams is a change of a provider and a change of a placement, as JSON in each of 1,000 streams of
// operators.
func BenchmarkStreams(b *testing.B) {
	f := largeFed()
	subscriptions := make([]*Subscription, 1000)
	for i := range subscriptions {
		subscriptions[i] = f.Subscribe(Scope{All: true}, "")
		defer subscriptions[i].Close()
		subscriptions[i].takeChanges() // Skip the first event, EventSync.
	}
	for _, shared := range []bool{false, true} {
		b.Run(fmt.Sprintf("shared=%t", shared), func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				f.sees(cluster("provider-007", func(pc *v1alpha1.ProviderCluster) {
					pc.Spec.Attributes = map[string]string{"region": "region-1", "price": fmt.Sprint(n)}
				}))
				f.sees(podIn("team-07", "web-00007", assigned(fmt.Sprintf("provider-%03d", n%1000), 84)))
				for _, s := range subscriptions {
					changes := s.takeChanges()
					if len(changes) != 2 {
						b.Fatalf("%d changes", len(changes))
					}
					for _, c := range changes {
						if !shared {
							c.Encoded = nil
						}
						if _, err := c.Encoded.JSON(c.Data); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
	}
}
