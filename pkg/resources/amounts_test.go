package resources_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

func TestRequestsRoundUpAndGrantsDown(t *testing.T) {
	for text, want := range map[string]struct {
		name     corev1.ResourceName
		up, down int64
	}{
		"1500m":               {corev1.ResourceCPU, 1500, 1500},
		"1500u":               {corev1.ResourceCPU, 2, 1},
		"9223372036854775":    {corev1.ResourceCPU, math.MaxInt64, math.MaxInt64},
		"9223372036854774":    {corev1.ResourceCPU, 9223372036854774000, 9223372036854774000},
		"2Gi":                 {corev1.ResourceMemory, 2 << 30, 2 << 30},
		"1900m":               {corev1.ResourceMemory, 2, 1},
		"9E":                  {corev1.ResourceMemory, 9e18, 9e18},
		"9223372036854775807": {corev1.ResourceMemory, math.MaxInt64, math.MaxInt64},
		"3":                   {gpu, 3, 3},
		"0":                   {gpu, 0, 0},
		"-4":                  {gpu, 0, 0},
		"-500m":               {gpu, 0, 0},
	} {
		list := corev1.ResourceList{want.name: resource.MustParse(text)}
		require.Equal(t, resources.Amounts{want.name: want.up}, resources.RoundUp(list), text)
		require.Equal(t, resources.Amounts{want.name: want.down}, resources.RoundDown(list), text)
	}
}

func TestAmountsAreTheSameAfterTheAPI(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := resources.Amounts{}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, gpu} {
			a[name] = rapid.Int64Range(0, math.MaxInt64/1000*1000-1).Draw(t, string(name))
		}
		require.Equal(t, a, resources.RoundUp(a.List()))
		require.Equal(t, a, resources.RoundDown(a.List()))
	})
}

func TestQuantitiesHaveTheUnitOfTheirResource(t *testing.T) {
	for want, of := range map[string]struct {
		name   corev1.ResourceName
		amount int64
	}{
		"1500m": {corev1.ResourceCPU, 1500},
		"8Gi":   {corev1.ResourceMemory, 8 << 30},
		"1Ki":   {corev1.ResourceEphemeralStorage, 1024},
		"1024":  {gpu, 1024},
	} {
		q := resources.Quantity(of.name, of.amount)
		require.Equal(t, want, q.String())
	}
}

func TestArithmetic(t *testing.T) {
	a := resources.Amounts{"cpu": 4000, "memory": 8}
	require.True(t, a.Covers(resources.Amounts{"cpu": 4000}))
	require.False(t, a.Covers(resources.Amounts{"cpu": 4001}))
	require.False(t, a.Covers(resources.Amounts{gpu: 1}))
	require.Equal(t, resources.Amounts{"cpu": 1000, "memory": 8}, a.Excess(resources.Amounts{"cpu": 3000, gpu: 2}))
	require.Equal(t, resources.Amounts{"cpu": 3000, "memory": 0}, a.Min(resources.Amounts{"cpu": 3000, gpu: 2}))
	require.Equal(t, resources.Amounts{"cpu": 6000, "memory": 12}, a.Scale(1.5))
	require.Equal(t, resources.Amounts{"cpu": 1333, "memory": 2}, a.Scale(1./3), "fractions are dropped")
	a.Sub(resources.Amounts{"cpu": 5000, gpu: 1, "memory": -1})
	require.Equal(t, resources.Amounts{"cpu": -1000, "memory": 8, gpu: -1}, a)
}

func TestAmountsDoNotOverflow(t *testing.T) {
	sum := resources.Amounts{}
	sum.Add(resources.Amounts{"memory": math.MaxInt64, "cpu": 2000, "pods": -5})
	sum.Add(resources.Amounts{"memory": 1, "cpu": 500, "pods": math.MinInt64})
	require.Equal(t, resources.Amounts{"memory": math.MaxInt64, "cpu": 2500, "pods": 0}, sum)
	require.Equal(t, resources.Amounts{"memory": math.MaxInt64, "cpu": 5000, "pods": 0}, sum.Scale(2))
	sum = resources.Amounts{"memory": math.MinInt64}
	sum.Sub(resources.Amounts{"memory": 1})
	require.Equal(t, resources.Amounts{"memory": math.MinInt64}, sum)

	rapid.Check(t, func(t *rapid.T) {
		sum, difference := resources.Amounts{}, resources.Amounts{}
		for _, amount := range rapid.SliceOf(rapid.Int64()).Draw(t, "amounts") {
			before, left := sum["x"], difference["x"]
			sum.Add(resources.Amounts{"x": amount})
			difference.Sub(resources.Amounts{"x": amount})
			require.GreaterOrEqual(t, sum["x"], before)
			require.LessOrEqual(t, difference["x"], left)
		}
	})
}

func TestPodRequests(t *testing.T) {
	requests := func(pairs ...string) corev1.ResourceRequirements {
		list := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return corev1.ResourceRequirements{Requests: list}
	}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want resources.Amounts
	}{
		"a pod that asks for nothing is one pod": {want: resources.Amounts{"pods": 1}},
		"containers add up, with what they extend": {
			spec: corev1.PodSpec{Containers: []corev1.Container{
				{Resources: requests("cpu", "100m", "memory", "1Ki", "nvidia.com/gpu", "1")},
				{Resources: requests("cpu", "0.5001", "ephemeral-storage", "1k")},
			}},
			want: resources.Amounts{"cpu": 601, "memory": 1024, "ephemeral-storage": 1000, "nvidia.com/gpu": 1, "pods": 1},
		},
		"the largest init container counts if it is more": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Resources: requests("cpu", "2")}, {Resources: requests("cpu", "1")}},
				Containers:     []corev1.Container{{Resources: requests("cpu", "500m")}},
			},
			want: resources.Amounts{"cpu": 2000, "pods": 1},
		},
		"a sidecar adds to the containers, overhead to all": {
			spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{
					RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: requests("cpu", "200m"),
				}},
				Containers: []corev1.Container{{Resources: requests("cpu", "500m")}},
				Overhead:   corev1.ResourceList{"cpu": resource.MustParse("50m")},
			},
			want: resources.Amounts{"cpu": 750, "pods": 1},
		},
		"what the pod as a whole states counts instead": {
			spec: corev1.PodSpec{
				Resources:  ptr.To(requests("cpu", "3")),
				Containers: []corev1.Container{{Resources: requests("cpu", "500m", "memory", "1Ki")}},
			},
			want: resources.Amounts{"cpu": 3000, "memory": 1024, "pods": 1},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, resources.PodRequests(&tc.spec)) })
	}
}
