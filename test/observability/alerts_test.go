package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leader and standby are the labels of the two replicas of a broker, vk and web those of the others.
const (
	leader  = `job="liqo-broker",namespace="liqo-broker",pod="liqo-broker-a",instance="a:8080",container="broker",endpoint="metrics"`
	standby = `job="liqo-broker",namespace="liqo-broker",pod="liqo-broker-b",instance="b:8080",container="broker",endpoint="metrics"`
	kubelet = `job="liqo-virtual-kubelet",namespace="liqo-tenant-b",pod="vk-b",instance="c:8082",container="virtual-kubelet",endpoint="metrics"`
	web     = `job="liqo-broker-catalog",namespace="liqo-broker",pod="catalog-a",instance="d:8082",container="catalog",endpoint="metrics"`
)

// of writes a series: the name, further labels, whose it is, and its values.
func of(name, more, whose, values string) string {
	if more != "" {
		more += ","
	}
	return fmt.Sprintf("  %s{%s%s} %s\n", name, more, whose, values)
}

// healthy is a broker that leads, its standby, a catalog, and two providers that are well. Tests say what is not.
func healthy() map[string]string {
	series := map[string]string{}
	add := func(key, text string) { series[key] = text }
	add("up", of("up", "", leader, "1x100")+of("up", "", standby, "1x100"))
	add("leader", of("leader_election_master_status", `name="liqo-broker"`, leader, "1x100")+
		of("leader_election_master_status", `name="liqo-broker"`, standby, "0x100"))
	for _, p := range []string{"p1", "p2"} {
		provider := fmt.Sprintf(`provider=%q`, p)
		add("up "+p, of("liqo_broker_provider_up", provider, leader, "1x100"))
		add("schedulable "+p, of("liqo_broker_provider_schedulable", provider, leader, "1x100"))
		add("probe "+p, of("liqo_broker_provider_last_probe_timestamp_seconds", provider, leader, "0+60x100"))
		for _, c := range []string{"Clean", "Reachable"} {
			add(c+" "+p, of("liqo_broker_provider_condition", provider+fmt.Sprintf(`,condition=%q`, c), leader, "1x100"))
		}
		add("granted "+p, of("liqo_broker_capacity_granted", provider+`,resource="cpu"`, leader, "10x100"))
		add("assigned "+p, of("liqo_broker_capacity_assigned", provider+`,resource="cpu"`, leader, "5x100"))
		add("refusals "+p, of("liqo_broker_refusals_total", provider+`,reason="refused"`, leader, "0x100"))
	}
	for key, name := range map[string]string{
		"unassigned": "pods_unassigned", "queue": "queue_length", "moving": "pods_moving", "suspended": "moves_suspended",
	} {
		add(key, of("liqo_broker_"+name, "", leader, "0x100")+of("liqo_broker_"+name, "", standby, "0x100"))
	}
	add("assigned", of("liqo_broker_pods_assigned", "", leader, "100x100")+of("liqo_broker_pods_assigned", "", standby, "0x100"))
	add("moves", of("liqo_broker_moves_total", `reason="provider_unreachable"`, leader, "0x100")+
		of("liqo_broker_moves_total", `reason="provider_drained"`, leader, "0x100"))
	add("policy", of("liqo_broker_policy_valid", `policy="gold"`, leader, "1x100"))
	add("patches", of("liqo_broker_api_patch_duration_seconds_count", `resource="pods"`, leader, "0+60x100"))
	add("patch errors", of("liqo_broker_api_patch_errors_total", `resource="pods",reason="Forbidden"`, leader, "0x100"))
	add("reconciles", of("controller_runtime_reconcile_total", `controller="pod",result="success"`, leader, "0+600x100"))
	add("failures", of("controller_runtime_reconcile_errors_total", `controller="pod"`, leader, "0x100"))
	add("wait", waits("liqo_broker_assignment_wait_seconds_bucket", "", leader, "0+60x100", "0+60x100"))
	add("denials", of("liqo_broker_offer_denials_total", `consumer="c1"`, leader, "0x100"))
	add("ipam", of("liqo_broker_ipam_requests_total", `method="MapEndpointIP",code="OK"`, leader, "0+60x100"))
	add("ipam errors", of("liqo_broker_ipam_requests_total", `method="MapEndpointIP",code="NotFound"`, leader, "0+60x100"))
	add("unanswered", of("liqo_broker_vk_remote_ipam_unanswered", "", kubelet, "0x100"))
	add("reflection", reflectionErrors("a", "Pod", "0x100"))
	add("catalog up", of("up", "", web, "1x100"))
	add("catalog", of("liqo_catalog_request_duration_seconds_count", `route="/api/v1/me",method="GET",code="200"`, web, "0+60x100"))
	add("catalog errors", of("liqo_catalog_request_duration_seconds_count", `route="/api/v1/me",method="GET",code="404"`, web, "0+60x100"))
	add("catalog time", waits("liqo_catalog_request_duration_seconds_bucket", `route="/api/v1/me",method="GET",code="200"`, web, "0+60x100", "0+60x100"))
	return series
}

// reflectionErrors are those of objects of a kind in a namespace, which the monitor leaves instead of the pod's.
func reflectionErrors(namespace, kind, values string) string {
	whose := strings.ReplaceAll(kubelet, `namespace="liqo-tenant-b"`, fmt.Sprintf("namespace=%q", namespace))
	return of("liqo_virtual_kubelet_reflection_error_counter",
		fmt.Sprintf(`cluster_id="b",node_name="broker",reflector_resource=%q`, kind), whose, values)
}

// waits is a histogram with a bucket up to 0.1, one up to 100, and that of all.
func waits(name, more, whose, quick, all string) string {
	with := func(le string) string { return strings.TrimPrefix(more+`,le="`+le+`"`, ",") }
	return of(name, with("0.1"), whose, quick) + of(name, with("100"), whose, all) + of(name, with("+Inf"), whose, all)
}

func text(series map[string]string) string {
	var all strings.Builder
	for _, key := range slices.Sorted(maps.Keys(series)) {
		all.WriteString(series[key])
	}
	return all.String()
}

func TestNothingFiresWhenAllIsWell(t *testing.T) {
	require.Empty(t, evaluate(t, text(healthy()), 0, time.Hour).firing())
}

// change replaces some of what is healthy; "" removes it.
type change map[string]string

// cases has, for each alert, what makes it fire and what almost does. Other alerts may fire with it: those say so, too.
func cases() map[string]struct {
	fires, quiet map[string]change
	// summary is that of the first that fires.
	summary string
} {
	type set = map[string]change
	p1 := func(name, more, values string) string { return of(name, `provider="p1"`+more, leader, values) }
	return map[string]struct {
		fires, quiet map[string]change
		summary      string
	}{
		"LiqoBrokerDown": {
			fires: set{
				"no replica answers": {"up": of("up", "", leader, "0x100") + of("up", "", standby, "0x100")},
				"there is no target": {"up": ""},
				"for 5 minutes":      {"up": of("up", "", leader, "1x54 0x46")},
			},
			quiet:   set{"one replica is enough": {"up": of("up", "", leader, "0x100") + of("up", "", standby, "1x100")}, "for a moment": {"up": of("up", "", leader, "1x57 0x43")}},
			summary: "No broker can be scraped",
		},
		"LiqoBrokerNoLeader": {
			fires: set{"both stand by": {"leader": of("leader_election_master_status", `name="liqo-broker"`, leader, "1x50 0x50") +
				of("leader_election_master_status", `name="liqo-broker"`, standby, "0x100")}},
			quiet: set{
				"the other one leads": {"leader": of("leader_election_master_status", `name="liqo-broker"`, leader, "1x50 0x50") +
					of("leader_election_master_status", `name="liqo-broker"`, standby, "0x51 1x49")},
				"a virtual kubelet stands by": {"vk": of("leader_election_master_status", `name="vk"`, kubelet, "0x100")},
			},
			summary: "No broker leads",
		},
		"LiqoBrokerNoProvider": {
			fires: set{
				"none is ready":        {"up p1": p1("liqo_broker_provider_up", "", "0x100"), "up p2": of("liqo_broker_provider_up", `provider="p2"`, leader, "0x100")},
				"the ready one is off": {"up p1": p1("liqo_broker_provider_up", "", "0x100"), "schedulable p2": of("liqo_broker_provider_schedulable", `provider="p2"`, leader, "0x100")},
			},
			quiet: set{
				"one is left":           {"up p1": p1("liqo_broker_provider_up", "", "0x100")},
				"nobody has peered yet": {"up p1": "", "up p2": "", "schedulable p1": "", "schedulable p2": ""},
			},
			summary: "No provider can be given pods",
		},
		"LiqoBrokerProviderNotReady": {
			fires:   set{"for 6 minutes": {"up p1": p1("liqo_broker_provider_up", "", "1x53 0x47")}},
			quiet:   set{"it is disabled": {"up p1": p1("liqo_broker_provider_up", "", "0x100"), "schedulable p1": p1("liqo_broker_provider_schedulable", "", "0x100")}, "for 2 minutes": {"up p1": p1("liqo_broker_provider_up", "", "1x57 0x43")}},
			summary: "Provider p1 is not Ready",
		},
		"LiqoBrokerProviderUnsteady": {
			fires:   set{"up and down": {"up p1": p1("liqo_broker_provider_up", "", strings.Repeat("1 1 1 1 0 0 0 ", 10))}},
			quiet:   set{"three outages": {"up p1": p1("liqo_broker_provider_up", "", "1x10 0 1x10 0 1x10 0 1x60")}},
			summary: "Provider p1 comes and goes",
		},
		"LiqoBrokerProviderNotProbed": {
			fires:   set{"for 5 minutes": {"probe p1": p1("liqo_broker_provider_last_probe_timestamp_seconds", "", "0+60x55 3300x45")}},
			quiet:   set{"a minute ago": {"probe p1": p1("liqo_broker_provider_last_probe_timestamp_seconds", "", "0+60x59 3540x41")}},
			summary: "Provider p1 is not probed",
		},
		"LiqoBrokerProviderNotClean": {
			fires: set{"since it came back": {"Clean p1": p1("liqo_broker_provider_condition", `,condition="Clean"`, "0x100")}},
			quiet: set{"it is not back": {
				"Clean p1":     p1("liqo_broker_provider_condition", `,condition="Clean"`, "0x100"),
				"Reachable p1": p1("liqo_broker_provider_condition", `,condition="Reachable"`, "0x100"),
			}, "it takes 5 minutes": {"Clean p1": p1("liqo_broker_provider_condition", `,condition="Clean"`, "1x54 0x46")}},
			summary: "Provider p1 may still run pods that were moved away",
		},
		"LiqoBrokerRequestsFail": {
			fires:   set{"one of ten": {"patch errors": of("liqo_broker_api_patch_errors_total", `resource="pods",reason="Forbidden"`, leader, "0+6x100")}},
			quiet:   set{"conflicts": {"patch errors": of("liqo_broker_api_patch_errors_total", `resource="pods",reason="Conflict"`, leader, "0+30x100")}, "one of a hundred": {"patch errors": of("liqo_broker_api_patch_errors_total", `resource="pods",reason="Unknown"`, leader, "0+0.6x100")}},
			summary: "The broker cannot write what it decides",
		},
		"LiqoBrokerReconcileErrors": {
			fires: set{"all that the one for offers does, once a minute": {
				"failures": of("controller_runtime_reconcile_errors_total", `controller="offer"`, leader, "0+1x100"),
				"offers":   of("controller_runtime_reconcile_total", `controller="offer",result="error"`, leader, "0+1x100"),
			}},
			quiet: set{
				"one of ten": {"failures": of("controller_runtime_reconcile_errors_total", `controller="pod"`, leader, "0+60x100")},
				"those of others": {
					"failures": of("controller_runtime_reconcile_errors_total", `controller="pod"`, kubelet, "0+600x100"),
				},
			},
			summary: "The broker's controller offer fails",
		},
		"LiqoBrokerPolicyInvalid": {
			fires:   set{"one": {"policy": of("liqo_broker_policy_valid", `policy="gold"`, leader, "0x100")}},
			quiet:   set{"while it was edited": {"policy": of("liqo_broker_policy_valid", `policy="gold"`, leader, "1x20 0x3 1x77")}},
			summary: "PlacementPolicy gold cannot be followed",
		},
		"LiqoBrokerAssignmentSlow": {
			fires:   set{"a tenth waits": {"wait": waits("liqo_broker_assignment_wait_seconds_bucket", "", leader, "0+54x100", "0+60x100")}},
			quiet:   set{"one of a thousand": {"wait": waits("liqo_broker_assignment_wait_seconds_bucket", "", leader, "0+59.94x100", "0+60x100")}, "nothing is assigned": {"wait": waits("liqo_broker_assignment_wait_seconds_bucket", "", leader, "5x100", "60x100")}},
			summary: "Pods wait long for a provider",
		},
		"LiqoBrokerQueueLong": {
			fires:   set{"for long": {"queue": of("liqo_broker_queue_length", "", leader, "2000x100")}},
			quiet:   set{"after a burst": {"queue": of("liqo_broker_queue_length", "", leader, "0x52 5000x5 0x43")}},
			summary: "The broker does not keep up",
		},
		"LiqoBrokerPodsUnassigned": {
			fires:   set{"for long": {"unassigned": of("liqo_broker_pods_unassigned", "", leader, "0x40 3x60")}},
			quiet:   set{"for 10 minutes": {"unassigned": of("liqo_broker_pods_unassigned", "", leader, "0x49 3x51")}},
			summary: "Pods find no provider",
		},
		"LiqoBrokerCapacityLow": {
			fires: set{
				"all are full":               {"assigned p1": p1("liqo_broker_capacity_assigned", `,resource="cpu"`, "9.5x100"), "assigned p2": of("liqo_broker_capacity_assigned", `provider="p2",resource="cpu"`, leader, "9.5x100")},
				"what is free is not usable": {"assigned p1": p1("liqo_broker_capacity_assigned", `,resource="cpu"`, "9.5x100"), "up p2": of("liqo_broker_provider_up", `provider="p2"`, leader, "0x100")},
			},
			quiet:   set{"one is full": {"assigned p1": p1("liqo_broker_capacity_assigned", `,resource="cpu"`, "10x100")}},
			summary: "The providers run out of cpu",
		},
		"LiqoBrokerOfferDenied": {
			fires:   set{"the first": {"denials": of("liqo_broker_offer_denials_total", `consumer="c1"`, leader, "0x55 1x45")}},
			quiet:   set{"an hour ago": {"denials": of("liqo_broker_offer_denials_total", `consumer="c1"`, leader, "0x10 1x90")}},
			summary: "Consumer c1 was denied what it asked for",
		},
		"LiqoBrokerMovesSuspended": {
			fires:   set{"it does": {"suspended": of("liqo_broker_moves_suspended", "", leader, "0x50 1x50")}},
			quiet:   set{"it did": {"suspended": of("liqo_broker_moves_suspended", "", leader, "0x20 1x10 0x70")}},
			summary: "The broker suspects itself to be cut off",
		},
		"LiqoBrokerManyMoves": {
			fires:   set{"30 of 100": {"moves": of("liqo_broker_moves_total", `reason="provider_unreachable"`, leader, "0x52 30x48")}},
			quiet:   set{"15 of 100": {"moves": of("liqo_broker_moves_total", `reason="provider_unreachable"`, leader, "0x52 15x48")}, "5 of 10": {"moves": of("liqo_broker_moves_total", `reason="provider_unreachable"`, leader, "0x52 5x48"), "assigned": of("liqo_broker_pods_assigned", "", leader, "10x100")}},
			summary: "Many pods are moved: provider_unreachable",
		},
		"LiqoBrokerMoveStuck": {
			fires:   set{"for long": {"moving": of("liqo_broker_pods_moving", "", leader, "0x40 2x60")}},
			quiet:   set{"for a while": {"moving": of("liqo_broker_pods_moving", "", leader, "0x50 2x50")}},
			summary: "Pods are on their way for long",
		},
		"LiqoBrokerProviderRefuses": {
			fires:   set{"20 pods": {"refusals p1": p1("liqo_broker_refusals_total", `,reason="refused"`, "0x52 20x48")}},
			quiet:   set{"5 pods": {"refusals p1": p1("liqo_broker_refusals_total", `,reason="refused"`, "0x52 5x48")}},
			summary: "Provider p1 does not take pods",
		},
		"LiqoBrokerIPAMErrors": {
			fires:   set{"a third": {"ipam errors": of("liqo_broker_ipam_requests_total", `method="MapEndpointIP",code="Internal"`, leader, "0+30x100")}},
			quiet:   set{"not mapped yet": {"ipam errors": of("liqo_broker_ipam_requests_total", `method="MapEndpointIP",code="Unavailable"`, leader, "0+30x100")}, "nobody asks": {"ipam": of("liqo_broker_ipam_requests_total", `method="MapEndpointIP",code="OK"`, leader, "0x100"), "ipam errors": ""}},
			summary: "The remote IPAM fails",
		},
		"LiqoVirtualKubeletAddressesUnanswered": {
			fires:   set{"for long": {"unanswered": of("liqo_broker_vk_remote_ipam_unanswered", "", kubelet, "4x100")}},
			quiet:   set{"just now": {"unanswered": of("liqo_broker_vk_remote_ipam_unanswered", "", kubelet, "0x55 4x45")}},
			summary: "Virtual kubelet vk-b does not learn addresses",
		},
		"LiqoVirtualKubeletReflectionErrors": {
			fires: set{"in two namespaces": {"reflection": reflectionErrors("a", "Pod", "0+4x100") + reflectionErrors("b", "Pod", "0+4x100")}},
			quiet: set{
				"now and then":       {"reflection": reflectionErrors("a", "Pod", "0+4x100")},
				"tokens are renewed": {"reflection": reflectionErrors("a", "ServiceAccount", "0+60x100")},
			},
			summary: "Pod objects are not reflected to b",
		},
		"LiqoCatalogErrors": {
			fires:   set{"a third": {"catalog errors": of("liqo_catalog_request_duration_seconds_count", `route="/api/v1/me",method="GET",code="500"`, web, "0+30x100")}},
			quiet:   set{"callers' faults": {"catalog errors": of("liqo_catalog_request_duration_seconds_count", `route="/api/v1/me",method="GET",code="401"`, web, "0+600x100")}},
			summary: "The catalog fails",
		},
		"LiqoCatalogSlow": {
			fires:   set{"a tenth": {"catalog time": waits("liqo_catalog_request_duration_seconds_bucket", `route="/api/v1/me",method="GET",code="200"`, web, "0+54x100", "0+60x100")}},
			quiet:   set{"a stream": {"stream": waits("liqo_catalog_request_duration_seconds_bucket", `route="/api/v1/events",method="GET",code="200"`, web, "0x100", "0+600x100")}},
			summary: "The catalog is slow",
		},
	}
}

func TestEachAlertFiresWhenItShouldAndOnlyThen(t *testing.T) {
	patience := patiences(t)
	for name, alert := range cases() {
		t.Run(name, func(t *testing.T) {
			for when, change := range alert.fires {
				require.Contains(t, summaries(t, change, time.Hour), name+": "+alert.summary, when)
				requireQuiet(t, name, summaries(t, change, patience[name]-time.Minute), when+", but not for long enough")
			}
			for when, change := range alert.quiet {
				requireQuiet(t, name, summaries(t, change, time.Hour), when)
			}
		})
	}
}

func requireQuiet(t *testing.T, alert string, summaries []string, when string) {
	t.Helper()
	for _, summary := range summaries {
		require.False(t, strings.HasPrefix(summary, alert+": "), "%s: %s", when, summary)
	}
}

// patiences are how long each alert waits before it fires.
func patiences(t *testing.T) map[string]time.Duration {
	t.Helper()
	file, err := root.rules()
	require.NoError(t, err)
	all := map[string]time.Duration{}
	for _, r := range file.all() {
		if r.For != "" {
			all[r.Alert], err = time.ParseDuration(r.For)
			require.NoError(t, err)
		}
	}
	return all
}

// summaries are the alerts that fire after an hour in which something was not healthy, and in whose last part, which may
// be none, the rules were evaluated.
func summaries(t *testing.T, change change, evaluatedFor time.Duration) []string {
	t.Helper()
	series := healthy()
	maps.Copy(series, change)
	var all []string
	for _, alert := range evaluate(t, text(series), time.Hour-evaluatedFor, time.Hour).firing() {
		assert.NotContains(t, alert.description, "<no value>")
		assert.NotContains(t, alert.description, "  ", "a label that is empty")
		all = append(all, alert.name+": "+alert.summary)
	}
	return all
}

// It must know what was a day ago.
func TestACatalogThatWasThereIsMissed(t *testing.T) {
	const name = "LiqoCatalogDown"
	has := func(series string) bool {
		alerts := evaluate(t, series, 24*time.Hour+10*time.Minute, 24*time.Hour+30*time.Minute).firing()
		return slices.ContainsFunc(alerts, func(f firing) bool { return f.name == name })
	}
	require.True(t, has(of("up", "", web, "1x1440 0x60")))
	require.True(t, has(of("up", "", web, "1x1440")))
	require.False(t, has(of("up", "", web, "1x1500")))
	require.False(t, has(of("up", "", web, "1x1466 0x34")), "it will be there again")
	require.False(t, has(of("up", "", leader, "1x1500")), "there never was one")
}

func TestRecords(t *testing.T) {
	series := healthy()
	maps.Copy(series, change{
		"schedulable p2": of("liqo_broker_provider_schedulable", `provider="p2"`, leader, "0x100"),
		"offers": of("liqo_broker_offers", `consumer="c1",resource="cpu"`, leader, "6x100") +
			of("liqo_broker_offers", `consumer="c2",resource="cpu"`, leader, "9x100") +
			of("liqo_broker_offers_available", `resource="cpu"`, leader, "20x100"),
		"moves": of("liqo_broker_moves_total", `reason="refused"`, leader, "0x50 8x50") +
			of("liqo_broker_moves_total", `reason="refused"`, standby, "0x100"),
		"assigned p1": of("liqo_broker_capacity_assigned", `provider="p1",resource="cpu"`, leader, "8x100"),
		"decision":    waits("liqo_broker_decision_duration_seconds_bucket", "", leader, "0+60x100", "0+60x100"),
		"start":       waits("liqo_broker_pod_start_seconds_bucket", "", leader, "0+60x100", "0+60x100"),
	})
	e := evaluate(t, text(series), 0, time.Hour)
	records := map[string]map[string]float64{
		"provider:liqo_broker_provider_up:max":                  {`{provider="p1"}`: 1, `{provider="p2"}`: 1},
		"provider:liqo_broker_provider_schedulable:max":         {`{provider="p1"}`: 1, `{provider="p2"}`: 0},
		"provider_resource:liqo_broker_capacity_assigned:ratio": {`{provider="p1", resource="cpu"}`: 0.8, `{provider="p2", resource="cpu"}`: 0.5},
		"resource:liqo_broker_capacity_assigned:ratio":          {`{resource="cpu"}`: 0.8},
		"resource:liqo_broker_offers:ratio":                     {`{resource="cpu"}`: 0.75},
		"reason:liqo_broker_moves:increase15m":                  {`{reason="refused"}`: 8},
		"job:liqo_broker_decision_duration_seconds:p99_5m":      {`{}`: 0.099},
		"job:liqo_broker_assignment_wait_seconds:p99_5m":        {`{}`: 0.099},
		"job:liqo_broker_pod_start_seconds:p90_15m":             {`{}`: 0.09},
		"job:liqo_broker_ipam_errors:ratio5m":                   {},
		"job:liqo_catalog_errors:ratio5m":                       {},
		"job:liqo_catalog_request_duration_seconds:p99_5m":      {`{}`: 0.099},
	}
	for name, want := range records {
		got := e.recorded(name)
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), name)
		for labels, value := range want {
			require.InDelta(t, value, got[labels], 0.02*value+0.001, name)
		}
	}
	file, err := root.rules()
	require.NoError(t, err)
	for _, r := range file.all() {
		if r.Record != "" {
			require.Contains(t, records, r.Record, "a record without a test")
		}
	}
}
