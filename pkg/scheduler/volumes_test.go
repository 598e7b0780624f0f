package scheduler

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/verdict"
)

func TestVolumesAreAtOneProvider(t *testing.T) {
	classes := func(names ...string) func(*Provider) {
		return func(p *Provider) { p.StorageClasses = sets.New(names...) }
	}
	s := stateOf(ready("p1", classes("ssd", "disk")), ready("p2", classes("disk")), ready("p3"))
	for name, tc := range map[string]struct {
		volumes *Volumes
		fit     []string
		reason  string // Of p3.
	}{
		"no claims": {nil, []string{"p1", "p2", "p3"}, "fits"},
		"at a provider": {
			&Volumes{Provider: "p2", Claim: "data"}, []string{"p2"}, "volume data is at provider p2",
		},
		"at a provider that does not offer its class any more": {
			&Volumes{Provider: "p3", Claim: "data"}, []string{"p3"}, "fits",
		},
		"at a provider that is gone":  {&Volumes{Provider: "p4", Claim: "data"}, nil, "volume data is at provider p4"},
		"nowhere yet":                 {&Volumes{Classes: []string{""}}, []string{"p1", "p2"}, "offers no storage class"},
		"nowhere yet, of a class":     {&Volumes{Classes: []string{"ssd"}}, []string{"p1"}, "offers no storage class ssd"},
		"nowhere yet, of two classes": {&Volumes{Classes: []string{"", "disk"}}, []string{"p1", "p2"}, "offers no storage class"},
		"one at a provider, one is not": {
			&Volumes{Provider: "p2", Claim: "a", Classes: []string{"ssd"}}, nil,
			"volume a is at provider p2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := asking(func(p *Pod) { p.Volumes = tc.volumes })
			d := decide(s, pod, nil)
			var fit []string
			for i := range d.Verdicts {
				if d.Verdicts[i].Filter == verdict.Passed {
					fit = append(fit, d.Verdicts[i].Provider)
				}
			}
			require.Equal(t, tc.fit, fit)
			require.Equal(t, tc.reason, d.Verdicts[2].Reason())
		})
	}
}

// A decision that was made on a copy is completed by the present state.
func TestConfirmReadsTheStorageClasses(t *testing.T) {
	offering := ready("p1", func(p *Provider) { p.StorageClasses = sets.New("ssd") })
	s := stateOf(offering)
	pod := asking(func(p *Pod) { p.Volumes = &Volumes{Classes: []string{"ssd"}} })
	d := decide(s.Snapshot(pod), pod, nil)
	require.NotEmpty(t, d.VirtualNode)
	s.SetProvider(ready("p1"))
	s.Confirm(now, pod, nil, d)
	require.Empty(t, d.VirtualNode)
	require.Equal(t, "offers no storage class ssd", d.Verdicts[0].Reason())
}
