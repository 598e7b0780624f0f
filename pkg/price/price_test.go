package price

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

type perHour = map[corev1.ResourceName]float64

func TestOf(t *testing.T) {
	later := metav1.NewTime(time.Unix(1_800_000_000, 0))
	lists := []v1alpha1.PriceList{
		{From: &later, Currency: "EUR", PerHour: map[corev1.ResourceName]v1alpha1.Decimal{"cpu": "0.05"}},
		{Currency: "EUR", PerHour: map[corev1.ResourceName]v1alpha1.Decimal{"cpu": "0.04", "nvidia.com/gpu": "2", "bad": "-1"}},
	}
	inOrder := Lists{
		{Currency: "EUR", PerHour: perHour{"cpu": 0.04, "nvidia.com/gpu": 2}},
		{Currency: "EUR", From: later.Time, PerHour: perHour{"cpu": 0.05}},
	}
	labels := map[string]string{
		"price.brokering.liqo.io/cpu": "0.03", "price.brokering.liqo.io/nvidia.com_gpu": "1.5", "price.brokering.liqo.io/currency": "USD",
		"price.brokering.liqo.io/memory": "cheap", "price.brokering.liqo.io/gpu": "1",
		"price.brokering.liqo.io/pods": "1e-9", "region": "eu",
	}
	advertised := Lists{{Currency: "USD", PerHour: perHour{"cpu": 0.03, "nvidia.com/gpu": 1.5}}}
	for name, tc := range map[string]struct {
		spec   v1alpha1.ProviderClusterSpec
		labels map[string]string
		want   Lists
	}{
		"none": {},
		"the attribute": {
			spec: v1alpha1.ProviderClusterSpec{Attributes: map[string]string{"price": "0.042"}},
			want: Lists{{PerHour: perHour{"cpu": 0.042}}},
		},
		"an attribute that is no number": {spec: v1alpha1.ProviderClusterSpec{Attributes: map[string]string{"price": "0x1p-2"}}},
		"lists replace the attribute, in order": {
			spec: v1alpha1.ProviderClusterSpec{Attributes: map[string]string{"price": "1"}, Prices: lists}, want: inOrder,
		},
		"advertised ones are not accepted": {labels: labels},
		"advertised ones replace the lists": {
			spec: v1alpha1.ProviderClusterSpec{AcceptAdvertisedPrices: true, Prices: lists}, labels: labels,
			want: advertised,
		},
		"accepted, but none is advertised": {
			spec: v1alpha1.ProviderClusterSpec{AcceptAdvertisedPrices: true, Prices: lists}, want: inOrder,
		},
		"a currency that is none has no name": {
			spec:   v1alpha1.ProviderClusterSpec{AcceptAdvertisedPrices: true},
			labels: map[string]string{"price.brokering.liqo.io/currency": "euros", "price.brokering.liqo.io/cpu": "1"},
			want:   Lists{{PerHour: perHour{"cpu": 1}}},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, Of(&tc.spec, tc.labels)) })
	}
}

func TestAProviderAdvertisesABoundedNumberOfPrices(t *testing.T) {
	labels := map[string]string{}
	for i := range 100 {
		labels[fmt.Sprintf("price.brokering.liqo.io/example.com_r%d", i)] = "1"
	}
	lists := Of(&v1alpha1.ProviderClusterSpec{AcceptAdvertisedPrices: true}, labels)
	require.Len(t, lists[0].PerHour, maxAdvertised)
}

func TestThePricesOfATime(t *testing.T) {
	at := func(hour int) time.Time { return time.Date(2026, 1, 1, hour, 0, 0, 0, time.UTC) }
	l := Lists{{From: at(1), Currency: "A"}, {From: at(2), Currency: "B"}, {From: at(2), Currency: "C"}}
	for hour, want := range []string{"", "A", "C", "C"} {
		list := l.At(at(hour))
		require.Equal(t, want == "", list == nil)
		if list != nil {
			require.Equal(t, want, list.Currency)
		}
	}
	require.Nil(t, Lists(nil).At(at(0)))
	next, ok := l.Next(at(1))
	require.True(t, ok)
	require.Equal(t, at(2), next)
	_, ok = l.Next(at(2))
	require.False(t, ok)
	require.Empty(t, l.PerCPU(at(1)))
	require.Equal(t, "0.5 EUR", Lists{{Currency: "EUR", PerHour: perHour{"cpu": 0.5}}}.PerCPU(at(0)))
}

func TestHourly(t *testing.T) {
	list := List{Currency: "EUR", PerHour: perHour{"cpu": 0.04, "memory": 0.005, "pods": 0.001, "nvidia.com/gpu": 2, "hugepages-2Mi": 1}}
	for name, tc := range map[string]struct {
		requests resources.Amounts
		want     string
	}{
		"nothing":               {nil, "0 EUR"},
		"cpu and memory":        {resources.Amounts{"cpu": 2500, "memory": 3 << 30, "pods": 1}, "0.116 EUR"},
		"a device":              {resources.Amounts{"nvidia.com/gpu": 2}, "4 EUR"},
		"huge pages":            {resources.Amounts{"hugepages-2Mi": 1 << 29}, "0.5 EUR"},
		"one without a price":   {resources.Amounts{"ephemeral-storage": 1 << 40}, "0 EUR"},
		"less than a millionth": {resources.Amounts{"memory": 1 << 10}, "0 EUR"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, list.Hourly(tc.requests).String()) })
	}
	require.Equal(t, "1.5", Amount{Value: 1.5}.String())
}

func TestParse(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "0.042": 0.042, "12": 12, "999999999.999": 999999999.999, "999999999.999999999": 1e9,
	} {
		got, ok := Parse(text)
		require.True(t, ok, text)
		require.InDelta(t, want, got, 1e-12)
	}
	for _, text := range []string{"", "-1", "+1", "1e3", "0x1", "Inf", "NaN", "1.2.3", ".", "1000000001", "1_000"} {
		_, ok := Parse(text)
		require.False(t, ok, text)
	}
}
