package e2e

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// TestFederation runs the broker, its virtual kubelets and the catalog as deploy/ installs them, with shorter times, in
// one federation. Its groups run in this order:
//
//   - "side by side": scenarios that touch only their own namespaces, and depend on nothing that others change.
//   - "chain", "catalog", "placing": scenarios that change a provider, a link or a selection, or look at everything.
//     The broker offers the sum of the providers' grants, so the chain's come before those that add a slice.
//   - "faults": scenarios that fill all providers or stop something.
//
// Scenarios with "hostile" in their names are attacks by a consumer, a tenant, an anonymous caller or a provider. make
// hostile runs them, and the tests of the guard (TestStockConsumer).
//
// Suites with their own federations run at the same time as all groups but the first where there are many processors.
// With few processors, they run at the same time as the faults if the machine is calm, otherwise afterwards.
func TestFederation(t *testing.T) {
	asides <- struct{}{}
	t.Cleanup(func() { <-asides })
	c := startFederation(t)
	b := c.brokered
	t.Run("a sandbox whose owner is killed leaves nothing", b.killedOwner)
	t.Run("side by side", func(t *testing.T) {
		for _, s := range []scenario{
			{"pods are spread by the policy", b.spread},
			{"bad criteria are explained", b.badCriteria},
			{"an unassigned pod can be deleted", b.unassigned},
			{"logs exec attach and port-forward", b.kubelet},
			{"namespaces of consumers are offloaded", c.sentOn},
			{"a hostile caller learns nothing from the remote IPAM", c.strangers},
			{"a hostile consumer reads nothing of others", c.readsNothing},
			{"a hostile consumer writes nothing but its own", c.writesNothing},
			{"changes are forwarded or reported", c.changes},
			{"pods differ from those of a node as documented", c.differences},
			{"the way of a pod is a trace", c.trace},
		} {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.run(t)
			})
		}
	})
	if manyProcessors {
		t.Parallel()
	}
	oneByOne(t, "chain", []scenario{
		{"pods show the addresses that lead to them", c.addresses},
		{"a Service spans the chain", c.services},
		{"pods that admission changes or evicts", c.admission},
		{"the selection of a consumer is its own", c.selections},
		{"the broker offers the sum of the providers", c.offers},
		{"an owner recalls its guarantee", c.shares},
		{"the network to a provider goes and comes", c.network},
		{"the remote IPAM goes and comes", c.remoteIPAM},
		{"an address is used again", c.reuse},
		{"a hostile provider shows no address of another cluster", c.foreignAddress},
		{"metrics match their document and their queries", c.metrics},
		{"a restart changes no address", c.restarts},
		{"a pod that came before the broker waits for it", c.overtaken},
	})
	t.Run("catalog", func(t *testing.T) {
		c.askers(t)
		runAll(t, []scenario{
			{"the list of clusters has its earlier form", c.clusters},
			{"the toggle has its earlier form and checks rights", c.toggle},
			{"providers and placements are those of the API", c.agrees},
			{"a consumer sees and changes its own", c.ownOnly},
			{"a decision is explained", c.explains},
			{"changes arrive as they happen", c.stream},
			{"a restart loses nothing", c.restart},
			{"the commands of kubectl broker", c.commands},
			{"the commands of the documents", c.documented},
			{"the dashboard works in a browser", c.dashboard},
			{"nothing leaks", c.leaks},
			{"its replicas share their certificate", c.certificate},
			{"its account has no unused rights", c.account},
		})
	})
	oneByOne(t, "placing", []scenario{
		{"a criterion of a consumer is obeyed", b.criterion},
		{"a name too long for two hops is explained", b.longName},
		{"constraints of pods are about providers", b.constrained},
		{"volumes are at the provider of their first pod", b.volumes},
		{"the ledger has the use of pods", b.recorded},
		{"a pod too large is placed when a provider grows", b.grows},
		{"a slice with GPUs is for pods that request them", b.slices},
		{"a pod moves from slice to slice", b.betweenSlices},
		{"a pod Pending too long is moved", b.pending},
		{"a pod refused by the quota is moved", b.refused},
		{"Liqo does what the histories assume", b.models},
		{"a disabled provider gets no new pod", b.disabled},
		{"providers that are all cordoned keep their pods", b.cordonedAll},
		{"a drained provider is emptied", b.drained},
		{"a provider without VirtualNodes is removed", b.unknown},
		{"a denied slice is shown", b.denied},
		{"a provider migrates to the broker and back", b.migrated},
		{"a completed pod stays completed", b.ended},
		{"a Service has its pods at two providers", b.service},
		{"hostile filters hold up nobody else", c.costly},
		{"a hostile flood of one consumer does not delay others", c.flood},
	})
	if c.BootTime() < calmBoot && !manyProcessors && enoughPlaces() {
		t.Parallel()
	}
	oneByOne(t, "faults", []scenario{
		{"150 pods at once exceed no grant", b.burst},
		{"a restart moves nothing", b.restarts},
		{"pods leave an unreachable provider", b.failover},
		{"a provider that rejects the broker keeps its pods", b.rejected},
		{"an outage of most providers moves nothing", b.suspicion},
		{"the Node is deleted", b.nodeDeleted},
		{"pods wait while the guard is missing", b.unguarded},
		{"a hostile provider harms no other", c.hostileProvider},
		{"faults of all kinds at once break no rule", b.chaos},
		{"each pod runs once after a backup is restored", c.backup},
	})
}

// calmBoot is how long the clusters of TestFederation may take to start on a calm machine: 40 s on two idle processors,
// up to three times as long on busy ones.
const calmBoot = time.Minute

type scenario struct {
	name string
	run  func(*testing.T)
}

func oneByOne(t *testing.T, group string, scenarios []scenario) {
	t.Helper()
	t.Run(group, func(t *testing.T) { runAll(t, scenarios) })
}

// runAll runs scenarios one after the other. Those that would begin after E2E_UNTIL, in Unix time, are skipped: on a slow
// machine .ci/run still ends in its time.
func runAll(t *testing.T, scenarios []scenario) {
	t.Helper()
	until := int64(math.MaxInt64)
	if text := os.Getenv("E2E_UNTIL"); text != "" {
		var err error
		until, err = strconv.ParseInt(text, 10, 64)
		require.NoError(t, err, "E2E_UNTIL is Unix time, in seconds")
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			if time.Now().Unix() >= until {
				t.Skip("left out: this machine has taken too long (E2E_UNTIL)")
			}
			s.run(t)
		})
	}
}

func startFederation(t *testing.T) *catalogued {
	t.Helper()
	spans, tracing := traced(t)
	dir, err := os.MkdirTemp("/var/tmp", "liqo-broker-vk-ledger-") // The /tmp of the broker is its own.
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	file := filepath.Join(dir, "ledger.db")
	b := startBroker(t, sandbox.Options{
		Name: "federation", Consumers: 2, Providers: 3, Networking: true, ConsumerNodes: true, RemoteIPAM: true,
		Catalog: true, CatalogArgs: []string{"--history-interval=1s"}, KubeletMetrics: true,
		ConsumerArgs: []string{"--direct-traffic=true", "--of-a-later-liqo=true"}, // It ignores unknown options.
		BrokerArgs: append([]string{
			"--offer-interval=2s", "--reclaim-after=10s", "--offer-storage-class=liqo;default",
			"--ledger=" + file, "--ledger-interval=" + ledgerInterval.String(),
		}, tracing...),
		BrokerKubeletArgs: tracing,
		DirectNetworks:    []string{"consumer1:provider1", "consumer1:provider2"},
	})
	b.ledger = file
	return &catalogued{
		chain: &chain{brokered: b, spans: spans, consumers: []*sandbox.Cluster{b.consumer, b.Cluster(sandbox.Consumer(2))}},
		tape:  &tape{answers: map[string][][]byte{}},
	}
}
