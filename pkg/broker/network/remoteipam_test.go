package network

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"

	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// lacking is a cache in which the informer of Networks fails with an error.
type lacking struct {
	*informertest.FakeInformers
	err error
}

func (c lacking) GetInformer(ctx context.Context, o client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	if _, is := o.(*ipamv1alpha1.Network); is && c.err != nil {
		return nil, c.err
	}
	return c.FakeInformers.GetInformer(ctx, o, options...)
}

// The remote IPAM answers on each replica. In one that does not lead no controller starts the informers.
func TestEverythingThatTheRemoteIPAMReadsIsInTheCache(t *testing.T) {
	scheme, err := apischeme.New()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		err   error
		fails bool
		want  []string
	}{
		"all kinds": {nil, false, []string{"Configuration", "IP", "Namespace", "Network"}},
		"one is not installed": {
			&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "Network"}}, false, []string{"Configuration", "IP", "Namespace"},
		},
		"another error": {errors.New("no API server"), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			caches := lacking{&informertest.FakeInformers{Scheme: scheme}, c.err}
			err := PrepareCache(t.Context(), caches)
			if c.fails {
				require.ErrorContains(t, err, "no API server")
				return
			}
			require.NoError(t, err)
			var kinds []string
			for gvk := range caches.InformersByGVK {
				kinds = append(kinds, gvk.Kind)
			}
			require.ElementsMatch(t, c.want, kinds)
		})
	}
}
