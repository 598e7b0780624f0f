package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// leader and standby are the labels of the two replicas of a broker; web and kubelet are the labels of the catalog and
// of a virtual kubelet.
const (
	leader  = `job="liqo-broker",` + home + `pod="liqo-broker-a",instance="a:8080",container="broker",endpoint="metrics"`
	standby = `job="liqo-broker",` + home + `pod="liqo-broker-b",instance="b:8080",container="broker",endpoint="metrics"`
	web     = `job="liqo-broker-catalog",` + home + `pod="web-a",instance="d:8082",container="catalog",endpoint="metrics"`
	kubelet = `job="liqo-virtual-kubelet",` + tenant + `pod="vk-b",instance="c:8082",container="vk",endpoint="metrics"`

	home   = `namespace="liqo-broker",`
	tenant = `namespace="liqo-tenant-b",`
)

// of returns a series: its name, further labels, the labels of its process, and its values.
func of(name, more, whose, values string) string {
	if more != "" {
		more += ","
	}
	return fmt.Sprintf("  %s{%s%s} %s\n", name, more, whose, values)
}

// healthy returns the series of a leading broker, its standby, a catalog, and two healthy providers. Tests change some
// of them.
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
		"unguarded": "guard_policies_missing",
	} {
		add(key, of("liqo_broker_"+name, "", leader, "0x100")+of("liqo_broker_"+name, "", standby, "0x100"))
	}
	add("assigned", lead("pods_assigned", "", "100x100")+of("liqo_broker_pods_assigned", "", standby, "0x100"))
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
	add("catalog", requests("200", "0+60x100"))
	add("catalog errors", requests("404", "0+60x100"))
	add("catalog time", took("/api/v1/me", "0+60x100", "0+60x100"))
	return series
}

// reflectionErrors returns the errors for objects of a kind in a namespace. The monitor keeps this namespace label
// instead of the pod's.
func reflectionErrors(namespace, kind, values string) string {
	whose := strings.ReplaceAll(kubelet, tenant, fmt.Sprintf("namespace=%q,", namespace))
	return of("liqo_virtual_kubelet_reflection_error_counter",
		fmt.Sprintf(`cluster_id="b",node_name="broker",reflector_resource=%q`, kind), whose, values)
}

// requests returns the requests that the catalog answered with a code.
func requests(code, values string) string {
	return of("liqo_catalog_request_duration_seconds_count",
		fmt.Sprintf(`route="/api/v1/me",method="GET",code=%q`, code), web, values)
}

// took returns the durations of the catalog's requests.
func took(route, quick, all string) string {
	return waits("liqo_catalog_request_duration_seconds_bucket",
		fmt.Sprintf(`route=%q,method="GET",code="200"`, route), web, quick, all)
}

// waits returns a histogram with the buckets 0.1, 100 and infinite.
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

// lead returns a series of the leading broker; p1 and p2 return its series about a provider.
func lead(name, more, values string) string { return of("liqo_broker_"+name, more, leader, values) }

func p1(name, more, values string) string { return lead(name, `provider="p1"`+more, values) }

func p2(name, more, values string) string { return lead(name, `provider="p2"`+more, values) }
