package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/test/audit"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// granted holds the rights that deploy/ grants to the accounts of the broker and of the catalog, and whether any suite
// used them.
type granted struct {
	mu   sync.Mutex
	used map[string]bool
}

// audited is filled by all suites: no suite alone uses all rights.
var audited = granted{used: map[string]bool{}}

// TestMain runs all tests. After a run of all suites, an unused right is a failure.
func TestMain(m *testing.M) {
	code := m.Run()
	all := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
	if unused := audited.unused(); code == 0 && all && len(unused) > 0 {
		fmt.Fprintf(os.Stderr, "granted by deploy/, and used by no suite:\n  %s\n", strings.Join(unused, "\n  "))
		code = 1
	}
	os.Exit(code)
}

// unseen returns the rights whose use no audit log can show, with the reason.
func unseen() map[string]string {
	const (
		byGuard = "the admission policy of the guard asks whether the broker has it"
		byOwner = "an admission plugin that is off by default asks whether who changes the owner of an object may delete it"
	)
	return map[string]string{
		"role liqo-broker-vk-guard: assign assignments.brokering.liqo.io everywhere":   byGuard,
		"role liqo-broker-vk-guard: grant resourceslices.brokering.liqo.io everywhere": byGuard,
		"role liqo-broker-vk-guard: update pods/status everywhere":                     byGuard,
		"role liqo-broker-vk: approve signers.certificates.k8s.io kubernetes.io/kubelet-serving everywhere": "the API server's " +
			"own admission asks whether the broker has it",
		"role liqo-broker-vk: get shadowpods.offloading.liqo.io everywhere": "needed where guard.localPods lets pods of consumers " +
			"come before their namespace is offloaded",
		"role liqo-broker-vk: get pods everywhere": "needed when the API server " +
			"does not answer a patch",
		"role liqo-broker-vk: delete nodes " + brokerNode + " everywhere":                              byOwner,
		"role liqo-broker: delete configmaps liqo-broker-node in namespace " + sandbox.BrokerComponent: byOwner,
	}
}

func (g *granted) unused() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []string
	for grant, used := range g.used {
		if _, ok := unseen()[grant]; !used && !ok {
			all = append(all, grant)
		}
	}
	slices.Sort(all)
	return all
}

// auditAccounts checks at the end of the suite that no account of the broker's namespace requested anything that it may
// not do.
func auditAccounts(t *testing.T, s *sandbox.Sandbox) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		requests, err := audit.Read(s.AuditLog())
		require.NoError(t, err)
		require.NotEmpty(t, requests)
		assert.Empty(t, audit.Forbidden(requests), "requests that were forbidden")
		for _, account := range []string{sandbox.BrokerComponent, sandbox.CatalogComponent} {
			name := types.NamespacedName{Namespace: sandbox.BrokerComponent, Name: account}
			grants, err := audit.Grants(ctx, s.Cluster(sandbox.Broker).Client, name)
			require.NoError(t, err)
			audited.note(grants, requests)
		}
	})
}

// share matches the objects among which pkg/isolation divides the addresses of a consumer. Which of them get addresses
// depends on the pods' addresses, so one name stands for all.
var share = regexp.MustCompile(`\bliqo-broker-isolation-\d+\b`)

func (g *granted) note(grants []audit.Grant, requests []audit.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range grants {
		name := share.ReplaceAllString(grants[i].String(), "liqo-broker-isolation-N")
		g.used[name] = g.used[name] || slices.ContainsFunc(requests, func(r audit.Request) bool { return grants[i].Uses(&r) })
	}
}
