package aggregator

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pages answers lists as an API server does, with two objects in each.
type pages struct {
	client.Reader
	total int
	asked []client.ListOptions
}

func (p *pages) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(options)
	p.asked = append(p.asked, o)
	from := 0
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &from); err != nil {
			return err
		}
	}
	pods := list.(*corev1.PodList)
	for i := from; i < min(from+2, p.total); i++ {
		pods.Items = append(pods.Items, corev1.Pod{Spec: corev1.PodSpec{Hostname: fmt.Sprint(i)}})
	}
	if from+2 < p.total {
		pods.Continue = fmt.Sprint(from + 2)
	}
	return nil
}

func TestWhatIsListedIsReadInChunks(t *testing.T) {
	reader := &pages{total: 5}
	var seen []string
	err := inChunks(t.Context(), reader, func(list *corev1.PodList) {
		for i := range list.Items {
			seen = append(seen, list.Items[i].Spec.Hostname)
		}
	}, client.MatchingFields{"spec.nodeName": ""})
	require.NoError(t, err)
	require.Equal(t, []string{"0", "1", "2", "3", "4"}, seen)
	require.Len(t, reader.asked, 3)
	for _, o := range reader.asked {
		require.EqualValues(t, chunkSize, o.Limit)
		require.Equal(t, "spec.nodeName=", o.FieldSelector.String())
	}
}
