package view

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnlyATokenOfTheSameListContinuesIt(t *testing.T) {
	f := newFed(Config{})
	f.sees(podIn("a", "x"), podIn("a", "y"), cluster("p1"), cluster("p2"), policyFor("q1"), policyFor("q2"))
	all := Scope{All: true}
	pods, err := f.Placements(PlacementQuery{Scope: all, Page: Page{Limit: 1}})
	require.NoError(t, err)
	providers, err := f.Providers(ProviderQuery{Page: Page{Limit: 1}})
	require.NoError(t, err)
	policies, err := f.Policies(all, Page{Limit: 1})
	require.NoError(t, err)

	tokens := map[string]string{
		"of placements": pods.Continue, "of providers": providers.Continue, "of policies": policies.Continue,
		"of another version": base64.RawURLEncoding.EncodeToString([]byte("2placements\na/x")),
		"without a key":      base64.RawURLEncoding.EncodeToString([]byte("1placements\n")),
		"without a name":     base64.RawURLEncoding.EncodeToString([]byte("1placements\na/")),
		"plain text":         "1placements\na/x",
		"padded":             base64.URLEncoding.EncodeToString([]byte("1placements\na/x1")),
	}
	for name, token := range tokens {
		page := Page{Continue: token}
		_, err := f.Placements(PlacementQuery{Scope: all, Page: page})
		require.Equal(t, name != "of placements", err != nil, name)
		_, noErr := f.Providers(ProviderQuery{Page: page})
		require.Equal(t, name != "of providers", noErr != nil, name)
		_, policyErr := f.Policies(all, page)
		require.Equal(t, name != "of policies", policyErr != nil, name)
		for _, err := range []error{err, noErr, policyErr} {
			if err != nil {
				require.ErrorIs(t, err, ErrContinue, name)
			}
		}
	}
}

func FuzzAnyTokenIsAnsweredOrRefused(f *testing.F) {
	view := newFed(Config{})
	view.sees(podIn("a", "x"))
	f.Add("")
	f.Add(tokenAfter(listOfPlacements, "a/w"))
	f.Add(tokenAfter(listOfPlacements, "\x00/\xff"))
	f.Fuzz(func(t *testing.T, token string) {
		list, err := view.Placements(PlacementQuery{Scope: Scope{All: true}, Page: Page{Limit: 1, Continue: token}})
		if err != nil {
			require.ErrorIs(t, err, ErrContinue)
			return
		}
		require.Equal(t, 1, list.Total)
	})
}
