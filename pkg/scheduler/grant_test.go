package scheduler

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

func TestWhatIsLeftOfAGrant(t *testing.T) {
	type amounts = resources.Amounts
	one, sum := amounts{"cpu": 4000, "memory": gi, "example.org/a": 2}, amounts{"cpu": 9000, "memory": gi, "pods": 7}
	for name, tc := range map[string]struct {
		creator string
		granted amounts
		asks    amounts
		want    string
	}{
		"what is left exactly":                       {"one", one, amounts{"cpu": 2000, "memory": gi, "pods": 1}, ""},
		"one thousandth more":                        {"one", one, amounts{"cpu": 2001}, "cpu: 2001m requested, 4 granted"},
		"a grant that is smaller than what is taken": {"one", amounts{"cpu": 1000}, amounts{"cpu": 1000}, "cpu: 1 requested, 1 granted"},
		"nothing, of a grant that is smaller":        {"one", amounts{"cpu": 1000}, amounts{"cpu": 0, "pods": 1}, ""},
		"a resource that is not granted":             {"one", one, amounts{gpu: 1}, string(gpu) + ": 1 requested, 0 granted"},
		"a resource that no provider has":            {"one", one, amounts{"example.org/a": 2}, ""},
		"more than is granted of such a one":         {"one", one, amounts{"example.org/a": 3}, "example.org/a: 3 requested, 2 granted"},
		"pods that are not limited":                  {"one", one, amounts{"pods": 1}, ""},
		"too many pods":                              {"one", amounts{"pods": 2}, amounts{"pods": 1}, "pods: 1 requested, 2 granted"},
		"one more pod":                               {"one", amounts{"pods": 3}, amounts{"pods": 1}, ""},
		"the first resource that is lacking":         {"one", amounts{}, amounts{"memory": gi, "cpu": 1}, "cpu: 1m requested, 0 granted"},
		"any pod of a user without a slice":          {"one", nil, amounts{"pods": 1}, "pods: 1 requested, 0 granted"},
		"all of another user":                        {"two", amounts{"cpu": 1000}, amounts{"cpu": 1000}, ""},
		"a user that is not known, of all":           {"", one, amounts{"cpu": 7000}, ""},
		"more of all":                                {"", one, amounts{"cpu": 7001}, "cpu: 7001m requested, 9 granted"},
	} {
		t.Run(name, func(t *testing.T) {
			s := stateOf(ready("q"), ready("r"))
			for uid, a := range map[string]Assignment{
				"a": {Account: Account{"c1", "one"}, Place: Place{"q", "q"}},
				"b": {Account: Account{"c1", "one"}}, // It is at no provider now.
				"c": {Account: Account{"c2", "one"}, Place: Place{"r", "r"}},
				"d": {Place: Place{"q", "q"}}, // Reserved for a pod that is counted where it is.
			} {
				a.UID, a.Requests = typesUID(uid), amounts{"cpu": 1000, "pods": 1}
				s.Assign(a)
			}
			grant := &Grant{ByCreator: map[string]amounts{tc.creator: tc.granted}, Sum: sum}
			if tc.granted == nil {
				grant.ByCreator = nil
			}
			whose := "exceeds the remaining grant of user " + tc.creator + " of consumer c1: "
			if tc.creator == "" {
				whose = "exceeds the remaining grants of consumer c1: "
			}
			got := s.Budget("c1", grant).Beyond(tc.creator, s.Demand(tc.asks))
			if tc.want == "" {
				require.Empty(t, got)
				return
			}
			require.Equal(t, whose+tc.want, got)
		})
	}
}

// Without Liqo's webhook no pod has the label of its user. The pods without the label and the pods with it share the
// total of the grants.
func TestPodsWithAndWithoutAUserFitIntoTheSum(t *testing.T) {
	type amounts = resources.Amounts
	grant := &Grant{ByCreator: map[string]amounts{"one": {"cpu": 2000}, "two": {"cpu": 2000}}, Sum: amounts{"cpu": 4000}}
	s := stateOf(ready("q"))
	cpu := func(milli int64) Demand { return s.Demand(amounts{"cpu": milli}) }
	s.Assign(Assignment{UID: "a", Account: Account{"c1", "one"}, Requests: amounts{"cpu": 1000}})
	require.True(t, s.Budget("c1", grant).Fits("two", cpu(2000)))
	s.Assign(Assignment{UID: "b", Account: Account{"c1", ""}, Requests: amounts{"cpu": 2500}})
	require.False(t, s.Budget("c1", grant).Fits("two", cpu(501)), "500m are left of all")
	require.Equal(t, "exceeds the remaining grants of consumer c1: cpu: 501m requested, 4 granted",
		s.Budget("c1", grant).Beyond("two", cpu(501)))
	require.True(t, s.Budget("c1", grant).Fits("two", cpu(500)))
	s.Release(HolderOf("b"))
	require.True(t, s.Budget("c1", grant).Fits("two", cpu(2000)))

	budget := s.Budget("c1", grant)
	budget.Take("", cpu(2500))
	require.False(t, budget.Fits("two", cpu(501)))
}

func TestWhatIsTakenIsNotLeft(t *testing.T) {
	s := stateOf(ready("q"))
	budget := s.Budget("c1", &Grant{ByCreator: map[string]resources.Amounts{"one": {"cpu": 2000}}})
	one := s.Demand(resources.Amounts{"cpu": 1000, "pods": 1})
	for range 2 {
		require.True(t, budget.Fits("one", one))
		budget.Take("one", one)
	}
	require.Equal(t, "exceeds the remaining grant of user one of consumer c1: cpu: 1 requested, 2 granted", budget.Beyond("one", one))
}

func TestSumsOfAccountsDoNotOverflow(t *testing.T) {
	s := stateOf(ready("q"))
	for i := range 2000 {
		uid := typesUID(strconv.Itoa(i))
		s.Assign(Assignment{
			UID: uid, Account: Account{"c1", strconv.Itoa(i % 2)}, Place: Place{strconv.Itoa(i), "q"},
			Requests: resources.Amounts{"cpu": math.MaxInt64},
		})
	}
	budget := s.Budget("c1", &Grant{Sum: resources.Amounts{"cpu": math.MaxInt64}})
	require.False(t, budget.Fits("", s.Demand(resources.Amounts{"cpu": 1})))
	for i := range 2000 {
		s.Release(HolderOf(typesUID(strconv.Itoa(i))))
	}
	require.Empty(t, s.accounts)
	require.Empty(t, s.consumers)
}

// After any sequence of Assign, move and Release, the sums of each account and consumer equal the sums of their
// assignments, and there are no other sums.
func TestSumsOfAccountsAreThoseOfTheirAssignments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		providers := drawProviders(t)
		places := []Place{{}, {"unknown", "unknown"}}
		for _, p := range providers {
			for _, slice := range p.Slices {
				places = append(places, Place{p.ID, slice.VirtualNode})
			}
		}
		accounts := []Account{{}, {"m", ""}, {"m", "u"}, {"n", "u"}}
		s, counted := stateOf(providers...), map[string]Assignment{}
		uids := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			uid := uids.Draw(t, "uid")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				s.Release(HolderOf(typesUID(uid)))
				delete(counted, uid)
			case 1:
				s.RemoveProvider(rapid.SampledFrom(providers).Draw(t, "removed").ID)
			case 2:
				snapshot := s.Snapshot(&Pod{UID: typesUID(uid)})
				snapshot.Release(HolderOf(typesUID(uid)))
			default:
				a := Assignment{
					UID: typesUID(uid), Account: rapid.SampledFrom(accounts).Draw(t, "account"),
					Place: rapid.SampledFrom(places).Draw(t, "at"), App: rapid.SampledFrom([]string{"", "x"}).Draw(t, "app"),
					Requests: drawAmounts.Draw(t, "requests"), Ended: rapid.Bool().Draw(t, "ended"),
				}
				s.Assign(a)
				counted[uid] = a
			}
			want, wantAll := map[Account]resources.Amounts{}, map[string]resources.Amounts{}
			for _, a := range counted {
				if a.Account == (Account{}) {
					continue
				}
				if want[a.Account] == nil {
					want[a.Account] = resources.Amounts{}
				}
				if wantAll[a.Account.Consumer] == nil {
					wantAll[a.Account.Consumer] = resources.Amounts{}
				}
				for name, amount := range a.Requests {
					if amount > 0 {
						want[a.Account][name] += amount
						wantAll[a.Account.Consumer][name] += amount
					}
				}
			}
			got, gotAll := map[Account]resources.Amounts{}, map[string]resources.Amounts{}
			for account, sum := range s.accounts {
				got[account] = s.table.Named(sum.amounts)
			}
			for consumer, sum := range s.consumers {
				gotAll[consumer] = s.table.Named(sum.amounts)
			}
			require.Equal(t, want, got)
			require.Equal(t, wantAll, gotAll)
			_, shown := s.Loads()[Place{}]
			require.False(t, shown, "a pod that is nowhere takes no room of the Node")
		}
		for uid := range counted {
			s.Release(HolderOf(typesUID(uid)))
		}
		require.Empty(t, s.accounts)
		require.Empty(t, s.consumers)
	})
}
