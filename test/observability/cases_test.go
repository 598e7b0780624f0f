package main

import (
	"maps"
	"strings"
)

// change replaces some of the healthy series; "" removes one.
type change map[string]string

type set = map[string]change

// expected is the expectation for one alert: what fires it, and what almost does. Other alerts may fire with it, and
// have their own cases.
type expected struct {
	fires, quiet set
	// summary is the summary of the first alert that fires.
	summary string
}

// cases returns all alerts except LiqoCatalogDown, by group.
func cases() map[string]expected {
	all := map[string]expected{}
	for _, group := range []map[string]expected{
		working(), unwell(), fastAndFull(), moving(), addresses(), ofCatalog(),
	} {
		maps.Copy(all, group)
	}
	return all
}

func working() map[string]expected {
	return map[string]expected{
		"LiqoBrokerDown": {
			fires: set{
				"no replica answers": {"up": of("up", "", leader, "0x100") + of("up", "", standby, "0x100")},
				"there is no target": {"up": ""},
				"for 5 minutes":      {"up": of("up", "", leader, "1x54 0x46")},
			},
			quiet: set{
				"one replica is enough": {"up": of("up", "", leader, "0x100") + of("up", "", standby, "1x100")},
				"for a moment":          {"up": of("up", "", leader, "1x57 0x43")},
			},
			summary: "No broker can be scraped",
		},
		"LiqoBrokerNoLeader": {
			fires: set{
				"both stand by": {"leader": of("leader_election_master_status", `name="liqo-broker"`, leader, "1x50 0x50") +
					of("leader_election_master_status", `name="liqo-broker"`, standby, "0x100")},
			},
			quiet: set{
				"the other one leads": {"leader": of("leader_election_master_status", `name="liqo-broker"`, leader, "1x50 0x50") +
					of("leader_election_master_status", `name="liqo-broker"`, standby, "0x51 1x49")},
				"a virtual kubelet stands by": {"vk": of("leader_election_master_status", `name="vk"`, kubelet, "0x100")},
			},
			summary: "No replica of the broker is the leader",
		},
		"LiqoBrokerNoProvider": {
			fires: set{
				"none is ready": {"up p1": p1("provider_up", "", "0x100"), "up p2": p2("provider_up", "", "0x100")},
				"the ready one is off": {
					"up p1":          p1("provider_up", "", "0x100"),
					"schedulable p2": p2("provider_schedulable", "", "0x100"),
				},
			},
			quiet: set{
				"one is left":     {"up p1": p1("provider_up", "", "0x100")},
				"no peerings yet": {"up p1": "", "up p2": "", "schedulable p1": "", "schedulable p2": ""},
			},
			summary: "No provider can be assigned pods",
		},
		"LiqoBrokerProviderNotReady": {
			fires: set{"for 6 minutes": {"up p1": p1("provider_up", "", "1x53 0x47")}},
			quiet: set{
				"it is disabled": {
					"up p1":          p1("provider_up", "", "0x100"),
					"schedulable p1": p1("provider_schedulable", "", "0x100"),
				},
				"for 2 minutes": {"up p1": p1("provider_up", "", "1x57 0x43")},
			},
			summary: "Provider p1 is not Ready",
		},
	}
}

func unwell() map[string]expected {
	return map[string]expected{
		"LiqoBrokerProviderRejects": {
			fires: set{"for 5 minutes": {"rejects p1": p1("provider_rejects", "", "0x50 1x50")}},
			quiet: set{"while its certificate is renewed": {"rejects p1": p1("provider_rejects", "", "0x58 1x42")}, "it was drained": {
				"rejects p1": p1("provider_rejects", "", "0x50 1x50"), "schedulable p1": p1("provider_schedulable", "", "0x100"),
			}},
			summary: "Provider p1 rejects the broker",
		},
		"LiqoBrokerProviderUnsteady": {
			fires:   set{"up and down": {"up p1": p1("provider_up", "", strings.Repeat("1 1 1 1 0 0 0 ", 10))}},
			quiet:   set{"three outages": {"up p1": p1("provider_up", "", "1x10 0 1x10 0 1x10 0 1x60")}},
			summary: "Provider p1 changes between Ready and not Ready",
		},
		"LiqoBrokerProviderNotProbed": {
			fires:   set{"for 5 minutes": {"probe p1": p1("provider_last_probe_timestamp_seconds", "", "0+60x55 3300x45")}},
			quiet:   set{"a minute ago": {"probe p1": p1("provider_last_probe_timestamp_seconds", "", "0+60x59 3540x41")}},
			summary: "Provider p1 is not probed",
		},
		"LiqoBrokerProviderNotClean": {
			fires: set{"since it came back": {"Clean p1": p1("provider_condition", `,condition="Clean"`, "0x100")}},
			quiet: set{"it is not back": {
				"Clean p1":     p1("provider_condition", `,condition="Clean"`, "0x100"),
				"Reachable p1": p1("provider_condition", `,condition="Reachable"`, "0x100"),
			}, "it takes 5 minutes": {"Clean p1": p1("provider_condition", `,condition="Clean"`, "1x54 0x46")}},
			summary: "Provider p1 may still run pods that were moved away",
		},
		"LiqoBrokerProviderStartsNothing": {
			fires:   set{"a slice is closed": {"starts p1": p1("provider_condition", `,condition="StartsPods"`, "0x100")}},
			quiet:   set{"a trial has started": {"starts p1": p1("provider_condition", `,condition="StartsPods"`, "0x20 _x80")}},
			summary: "Provider p1 starts no pods",
		},
		"LiqoBrokerRequestsFail": {
			fires: set{
				"one of ten": {"patch errors": lead("api_patch_errors_total", `resource="pods",reason="Forbidden"`, "0+6x100")},
			},
			quiet: set{
				"conflicts": {"patch errors": lead("api_patch_errors_total", `resource="pods",reason="Conflict"`, "0+30x100")},
				"one of a hundred": {
					"patch errors": lead("api_patch_errors_total", `resource="pods",reason="Unknown"`, "0+0.6x100"),
				},
			},
			summary: "The broker cannot write its decisions",
		},
		"LiqoBrokerReconcileErrors": {
			fires: set{"all that the one for offers does, once a minute": {
				"failures": of("controller_runtime_reconcile_errors_total", `controller="offer"`, leader, "0+1x100"),
				"offers":   of("controller_runtime_reconcile_total", `controller="offer",result="error"`, leader, "0+1x100"),
			}},
			quiet: set{
				"one of ten": {
					"failures": of("controller_runtime_reconcile_errors_total", `controller="pod"`, leader, "0+60x100"),
				},
				"those of others": {
					"failures": of("controller_runtime_reconcile_errors_total", `controller="pod"`, kubelet, "0+600x100"),
				},
			},
			summary: "The broker's controller offer fails",
		},
		"LiqoBrokerPanics": {
			fires: set{"one": {"panics": of("controller_runtime_reconcile_panics_total", `controller="provider"`, leader, "0x40 1x60")}},
			quiet: set{
				"an hour ago": {"panics": of("controller_runtime_reconcile_panics_total", `controller="provider"`, leader, "0x5 1x95")},
			},
			summary: "The broker's controller provider panics",
		},
		"LiqoBrokerPolicyInvalid": {
			fires:   set{"one": {"policy": lead("policy_valid", `policy="gold"`, "0x100")}},
			quiet:   set{"while it was edited": {"policy": lead("policy_valid", `policy="gold"`, "1x20 0x3 1x77")}},
			summary: "PlacementPolicy gold is invalid",
		},
	}
}

func fastAndFull() map[string]expected {
	return map[string]expected{
		"LiqoBrokerAssignmentSlow": {
			fires: set{
				"a tenth waits": {
					"wait": waits("liqo_broker_assignment_wait_seconds_bucket", "", leader, "0+54x100", "0+60x100"),
				},
			},
			quiet: set{
				"one of a thousand": {
					"wait": waits("liqo_broker_assignment_wait_seconds_bucket", "", leader, "0+59.94x100", "0+60x100"),
				},
				"nothing is assigned": {
					"wait": waits("liqo_broker_assignment_wait_seconds_bucket", "", leader, "5x100", "60x100"),
				},
			},
			summary: "Pods wait long for a provider",
		},
		"LiqoBrokerQueueLong": {
			fires:   set{"for long": {"queue": lead("queue_length", "", "2000x100")}},
			quiet:   set{"after a burst": {"queue": lead("queue_length", "", "0x52 5000x5 0x43")}},
			summary: "The broker's queue is long",
		},
		"LiqoBrokerPodsUnassigned": {
			fires:   set{"for long": {"unassigned": lead("pods_unassigned", "", "0x40 3x60")}},
			quiet:   set{"for 10 minutes": {"unassigned": lead("pods_unassigned", "", "0x49 3x51")}},
			summary: "Pods fit no provider",
		},
		"LiqoBrokerCapacityLow": {
			fires: set{
				"all are full": {
					"assigned p1": p1("capacity_assigned", `,resource="cpu"`, "9.5x100"),
					"assigned p2": p2("capacity_assigned", `,resource="cpu"`, "9.5x100"),
				},
				"what is free is not usable": {
					"assigned p1": p1("capacity_assigned", `,resource="cpu"`, "9.5x100"),
					"up p2":       p2("provider_up", "", "0x100"),
				},
			},
			quiet:   set{"one is full": {"assigned p1": p1("capacity_assigned", `,resource="cpu"`, "10x100")}},
			summary: "The providers run out of cpu",
		},
		"LiqoBrokerOfferDenied": {
			fires:   set{"the first": {"denials": lead("offer_denials_total", `consumer="c1"`, "0x55 1x45")}},
			quiet:   set{"an hour ago": {"denials": lead("offer_denials_total", `consumer="c1"`, "0x10 1x90")}},
			summary: "Consumer c1 was denied a ResourceSlice",
		},
	}
}

func moving() map[string]expected {
	return map[string]expected{
		"LiqoBrokerUnguarded": {
			fires:   set{"it is": {"unguarded": lead("guard_policies_missing", "", "0x50 2x50")}},
			quiet:   set{"it was, at a start": {"unguarded": lead("guard_policies_missing", "", "7x0 0x99")}},
			summary: "Policies of the guard are not in force",
		},
		"LiqoBrokerNotIsolated": {
			fires:   set{"an object is not applied": {"isolation": lead("isolation_failed", `consumer="c1"`, "0x50 1x50")}},
			quiet:   set{"a gateway was busy": {"isolation": lead("isolation_failed", `consumer="c1"`, "0x50 1x2 0x48")}},
			summary: "The isolation of consumer c1 is not applied",
		},
		"LiqoBrokerMovesSuspended": {
			fires:   set{"it does": {"suspended": lead("moves_suspended", "", "0x50 1x50")}},
			quiet:   set{"it did": {"suspended": lead("moves_suspended", "", "0x20 1x10 0x70")}},
			summary: "The broker suspects that it is disconnected",
		},
		"LiqoBrokerLedgerNotWritten": {
			fires: set{"it was written long ago": {"written": lead("ledger_last_write_timestamp_seconds", "", "60x100")}},
			quiet: set{
				"there is no ledger": {}, "it is written": {"written": lead("ledger_last_write_timestamp_seconds", "", "0+60x100")},
			},
			summary: "The ledger is not written",
		},
		"LiqoBrokerManyMoves": {
			fires: set{"30 of 100": {"moves": lead("moves_total", `reason="provider_unreachable"`, "0x52 30x48")}},
			quiet: set{
				"15 of 100": {"moves": lead("moves_total", `reason="provider_unreachable"`, "0x52 15x48")},
				"5 of 10": {
					"moves":    lead("moves_total", `reason="provider_unreachable"`, "0x52 5x48"),
					"assigned": lead("pods_assigned", "", "10x100"),
				},
			},
			summary: "Many pods are moved: provider_unreachable",
		},
		"LiqoBrokerMoveStuck": {
			fires:   set{"for long": {"moving": lead("pods_moving", "", "0x40 2x60")}},
			quiet:   set{"for a while": {"moving": lead("pods_moving", "", "0x50 2x50")}},
			summary: "Moves of pods do not end",
		},
		"LiqoBrokerProviderRefuses": {
			fires:   set{"20 pods": {"refusals p1": p1("refusals_total", `,reason="refused"`, "0x52 20x48")}},
			quiet:   set{"5 pods": {"refusals p1": p1("refusals_total", `,reason="refused"`, "0x52 5x48")}},
			summary: "Provider p1 refuses pods",
		},
	}
}

func addresses() map[string]expected {
	return map[string]expected{
		"LiqoBrokerIPAMErrors": {
			fires: set{
				"a third": {"ipam errors": lead("ipam_requests_total", `method="MapEndpointIP",code="Internal"`, "0+30x100")},
			},
			quiet: set{
				"not mapped yet": {
					"ipam errors": lead("ipam_requests_total", `method="MapEndpointIP",code="Unavailable"`, "0+30x100"),
				},
				"no requests": {
					"ipam":        lead("ipam_requests_total", `method="MapEndpointIP",code="OK"`, "0x100"),
					"ipam errors": "",
				},
			},
			summary: "The remote IPAM answers with errors",
		},
		"LiqoVirtualKubeletAddressesUnanswered": {
			fires:   set{"for long": {"unanswered": of("liqo_broker_vk_remote_ipam_unanswered", "", kubelet, "4x100")}},
			quiet:   set{"just now": {"unanswered": of("liqo_broker_vk_remote_ipam_unanswered", "", kubelet, "0x55 4x45")}},
			summary: "Virtual kubelet vk-b gets no addresses",
		},
		"LiqoVirtualKubeletReflectionErrors": {
			fires: set{
				"in two namespaces": {
					"reflection": reflectionErrors("a", "Pod", "0+4x100") + reflectionErrors("b", "Pod", "0+4x100"),
				},
			},
			quiet: set{
				"now and then":       {"reflection": reflectionErrors("a", "Pod", "0+4x100")},
				"tokens are renewed": {"reflection": reflectionErrors("a", "ServiceAccount", "0+60x100")},
			},
			summary: "Pod objects are not reflected to b",
		},
	}
}

func ofCatalog() map[string]expected {
	return map[string]expected{
		"LiqoCatalogErrors": {
			fires: set{
				"a third": {
					"catalog errors": requests("500", "0+30x100"),
				},
			},
			quiet: set{
				"callers' faults": {
					"catalog errors": requests("401", "0+600x100"),
				},
			},
			summary: "The catalog answers with errors",
		},
		"LiqoCatalogSlow": {
			fires: set{
				"a tenth": {
					"catalog time": took("/api/v1/me", "0+54x100", "0+60x100"),
				},
			},
			quiet: set{
				"a stream": {
					"stream": took("/api/v1/events", "0x100", "0+600x100"),
				},
			},
			summary: "The catalog is slow",
		},
	}
}
