package caller

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// rbac has the granted permissions, as "user verb resource namespace/name".
type rbac map[string]bool

func (r rbac) Authorize(_ context.Context, who user.Info, anyOf []authorizationv1.ResourceAttributes) (bool, error) {
	if r["broken"] {
		return false, errors.New("connection refused")
	}
	for _, a := range anyOf {
		if r[who.GetName()+" "+a.Verb+" "+a.Resource+" "+a.Namespace+"/"+a.Name] {
			return true, nil
		}
	}
	return false, nil
}

// Refuse counts objects that do not exist as "refused verb resource namespace/name".
func (r rbac) Refuse(_ context.Context, _ user.Info, a *authorizationv1.ResourceAttributes) error {
	if r["broken"] {
		return &LimitError{}
	}
	r["refused "+a.Verb+" "+a.Resource+" "+a.Namespace+"/"+a.Name] = true
	return nil
}

// tenants are the consumers c1 and c2.
type tenants struct{}

func (tenants) TenantNamespace(consumer string) (string, bool) {
	return "liqo-tenant-" + consumer, consumer == "c1" || consumer == "c2"
}

func (tenants) TenantOf(namespace string) (string, bool) {
	switch namespace {
	case "liqo-tenant-c1":
		return "c1", true
	case "liqo-tenant-c2":
		return "c2", true
	}
	return "", false
}

func TestOnWhoseBehalf(t *testing.T) {
	rights := Rights{Tenants: tenants{}, Authorizer: rbac{
		"c1 create resourceslices liqo-tenant-c1/":                                     true,
		"slice create resourceslices liqo-tenant-c2/":                                  true,
		"admin create resourceslices liqo-tenant-c1/":                                  true,
		"admin create resourceslices liqo-tenant-c2/":                                  true,
		"system:serviceaccount:liqo-tenant-c1:x create resourceslices liqo-tenant-c1/": true,
		"system:serviceaccount:ops:x create resourceslices liqo-tenant-c1/":            true,
		"liqo.io create resourceslices liqo-tenant-c1/":                                true,
	}}
	for name, tc := range map[string]struct {
		user          string
		organizations []string
		// supposed is the consumer of who if it names none; acts are the consumers that it may act for.
		supposed string
		acts     []string
	}{
		"a stranger": {},
		"the control plane of a consumer": {
			user: "c1", organizations: []string{"liqo.io"}, supposed: "c1", acts: []string{"c1"},
		},
		"one that has another consumer written there": {user: "c1", organizations: []string{"liqo.io", "c2"}, acts: []string{"c1"}},
		"a control plane that was given no right":     {user: "c2", organizations: []string{"liqo.io"}},
		"the identity of a slice, which has no right": {user: "slice-1", organizations: []string{"c1"}},
		"the identity of a slice that was given the right": {
			user: "slice", organizations: []string{"c2"}, supposed: "c2", acts: []string{"c2"},
		},
		"a service account in the tenant namespace": {
			user: "system:serviceaccount:liqo-tenant-c1:x", supposed: "c1", acts: []string{"c1"},
		},
		"one there that was given no right":                 {user: "system:serviceaccount:liqo-tenant-c2:x"},
		"one elsewhere must say so":                         {user: "system:serviceaccount:ops:x", acts: []string{"c1"}},
		"an operator must say so":                           {user: "admin", acts: []string{"c1", "c2"}},
		"a user of no certificate, even of a consumer's id": {user: "c1", acts: []string{"c1"}},
	} {
		t.Run(name, func(t *testing.T) {
			who := &Caller{organizations: tc.organizations}
			if tc.user != "" {
				who.User = &user.DefaultInfo{Name: tc.user}
			}
			got, err := rights.Consumer(t.Context(), who)
			require.NoError(t, err)
			require.Equal(t, tc.supposed, got)
			var acts []string
			for _, consumer := range []string{"c1", "c2", "c3"} {
				if err := rights.NeedToActFor(t.Context(), who, consumer); err == nil {
					acts = append(acts, consumer)
				} else if tc.user == "" {
					require.ErrorIs(t, err, ErrStranger)
				} else {
					var forbidden *ForbiddenError
					require.ErrorAs(t, err, &forbidden)
				}
			}
			require.Equal(t, tc.acts, acts)
		})
	}
}

func TestRightsAreAskedForOneByOne(t *testing.T) {
	rights := Rights{Tenants: tenants{}, Authorizer: rbac{
		"ann list providerclusters /": true, "ann get pods ns/": true, "ann patch providerclusters /p1": true,
	}}
	ann := &Caller{User: &user.DefaultInfo{Name: "ann"}}
	require.NoError(t, rights.Need(t.Context(), ann, GetPods("ns"), ListProviders()))
	require.NoError(t, rights.Need(t.Context(), ann, PatchProvider("p1")))
	require.EqualError(t, rights.Need(t.Context(), ann, PatchProvider("p2")), "you may not patch providerclusters.brokering.liqo.io p2")
	require.EqualError(t, rights.Need(t.Context(), ann, ListProviders(), GetPods("")), "you may not get pods in all namespaces")
	require.EqualError(t, rights.Need(t.Context(), ann, ListPods("ns")), "you may not list pods in namespace ns")
	require.EqualError(t, rights.Need(t.Context(), ann, ListPolicies()), "you may not list placementpolicies.brokering.liqo.io")
	require.ErrorIs(t, rights.Need(t.Context(), &Caller{}, ListProviders()), ErrStranger)
	has, err := rights.Has(t.Context(), &Caller{}, ListProviders())
	require.NoError(t, err)
	require.False(t, has)

	rights.Authorizer = rbac{"broken": true}
	require.ErrorIs(t, rights.Need(t.Context(), ann, ListProviders()), ErrUnavailable)
	_, err = rights.Consumer(t.Context(), &Caller{User: &user.DefaultInfo{Name: "c1"}, organizations: []string{"liqo.io"}})
	require.ErrorIs(t, err, ErrUnavailable)
}

func TestWhatDoesNotExistIsRefusedAsWhatDoes(t *testing.T) {
	permissions := rbac{"all list pods /": true, "one list pods ns/": true}
	rights := Rights{Tenants: tenants{}, Authorizer: permissions}
	for name, tc := range map[string]struct {
		user   string
		exists bool
		want   string
		// refused means refused without a review.
		refused bool
	}{
		"who may all, what exists":          {user: "all", exists: true},
		"who may all, what does not":        {user: "all"},
		"who may this one":                  {user: "one", exists: true},
		"who may this one, but it has gone": {user: "one", want: "you may not list pods in namespace ns", refused: true},
		"who may not, what exists":          {user: "none", exists: true, want: "you may not list pods in namespace ns"},
		"who may not, what does not":        {user: "none", want: "you may not list pods in namespace ns", refused: true},
		"a stranger, what exists":           {exists: true, want: ErrStranger.Error()},
		"a stranger, what does not":         {want: ErrStranger.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			who := &Caller{}
			if tc.user != "" {
				who.User = &user.DefaultInfo{Name: tc.user}
			}
			delete(permissions, "refused list pods ns/")
			err := rights.NeedEither(t.Context(), who, ListPods(""), ListPods("ns"), tc.exists)
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, tc.want)
			}
			require.Equal(t, tc.refused, permissions["refused list pods ns/"])
		})
	}
	none := &Caller{User: &user.DefaultInfo{Name: "none"}}
	require.ErrorContains(t, rights.NeedToActFor(t.Context(), none, "c3"), "you may not act for")
	require.True(t, permissions["refused create resourceslices of consumer c3/"],
		"a consumer that there is not costs as much as one that there is")
	rights.Authorizer = rbac{"broken": true}
	var limit *LimitError
	require.ErrorAs(t, rights.NeedToActFor(t.Context(), none, "c3"), &limit)
}
