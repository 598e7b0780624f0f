package histories

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func patchedPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pod", UID: "uid", ResourceVersion: "7", Labels: map[string]string{"app": "a"},
			Annotations: map[string]string{"one": "1", "two": "2"}, Finalizers: []string{"f", "g"},
			OwnerReferences: []metav1.OwnerReference{{Name: "owner", Controller: ptr.To(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node", Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(metav1.Unix(1_700_000_000, 0))},
	}
}

// patchedProvider has maps of structs that marshal themselves, in lists of structs.
func patchedProvider() *v1alpha1.ProviderCluster {
	amounts := func(cpu string) v1alpha1.Resources {
		return v1alpha1.Resources{Granted: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	return &v1alpha1.ProviderCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "q", ResourceVersion: "7"},
		Spec:       v1alpha1.ProviderClusterSpec{Attributes: map[string]string{"region": "eu"}},
		Status: v1alpha1.ProviderClusterStatus{
			Pods: 3, Resources: amounts("4"),
			VirtualNodes: []v1alpha1.VirtualNodeStatus{{Name: "a", Ready: true, Resources: amounts("1")}, {Name: "b", Reason: "not ready"}},
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1_700_000_000, 0),
			}},
		},
	}
}

func TestAMergePatchMergesAsInJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		object client.Object
		patch  string
	}{
		"nothing":                        {patchedPod(), `{}`},
		"a member of a map":              {patchedPod(), `{"metadata":{"annotations":{"two":"3","three":"4"}}}`},
		"a member is removed":            {patchedPod(), `{"metadata":{"annotations":{"two":null,"none":null}}}`},
		"a map is removed":               {patchedPod(), `{"metadata":{"labels":null}}`},
		"a map that is not there":        {patchedProvider(), `{"metadata":{"labels":{"a":"b","c":null}}}`},
		"a list is replaced":             {patchedPod(), `{"metadata":{"finalizers":["h"]}}`},
		"a list of structs is replaced":  {patchedPod(), `{"spec":{"containers":[{"name":"d"},{"image":"i"}]}}`},
		"a list is removed":              {patchedPod(), `{"metadata":{"ownerReferences":null}}`},
		"a pointer to a struct":          {patchedPod(), `{"spec":{"affinity":{"podAffinity":{}}}}`},
		"a pointer is removed":           {patchedPod(), `{"spec":{"affinity":{"nodeAffinity":null}}}`},
		"a pointer to a number":          {patchedPod(), `{"metadata":{"deletionGracePeriodSeconds":30}}`},
		"a time":                         {patchedPod(), `{"status":{"startTime":"2024-01-01T00:00:00Z"}}`},
		"a field that is not known":      {patchedPod(), `{"status":{"none":{"a":1},"reason":"r"}}`},
		"quantities":                     {patchedProvider(), `{"status":{"resources":{"granted":{"cpu":"5","memory":"1Gi"},"free":{"cpu":"0"}}}}`},
		"a list with maps of quantities": {patchedProvider(), `{"status":{"virtualNodes":[{"name":"b","resources":{"granted":{"cpu":"2"}}}]}}`},
		"conditions": {
			patchedProvider(), `{"status":{"conditions":[{"type":"Ready","status":"False","lastTransitionTime":"2024-01-01T00:00:00Z"}]}}`,
		},
		"a spec": {patchedProvider(), `{"spec":{"drain":true,"enabled":false,"attributes":{"region":null,"zone":"1"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			before := copyOf(tc.object)
			original, err := json.Marshal(tc.object)
			require.NoError(t, err)
			merged, err := jsonpatch.MergePatch(original, []byte(tc.patch))
			require.NoError(t, err)
			want := reflect.New(reflect.TypeOf(tc.object).Elem()).Interface()
			require.NoError(t, json.Unmarshal(merged, want))

			got := reflect.New(reflect.TypeOf(tc.object).Elem())
			got.Elem().Set(reflect.ValueOf(tc.object).Elem())
			require.NoError(t, mergeInto(got.Interface(), []byte(tc.patch)))
			require.True(t, equality.Semantic.DeepEqual(want, got.Interface()), "%#v\n%#v", want, got)
			require.Equal(t, before, tc.object, "what the object shares is changed")
		})
	}
}

func TestAMergePatchThatDoesNotFitIsAnError(t *testing.T) {
	for _, patch := range []string{`{"metadata":[]}`, `{"status":{"phase":1}}`, `{"metadata":{"labels":{"a":{}}}}`, `{"spec":"x"}`} {
		require.Error(t, mergeInto(patchedPod(), []byte(patch)), patch)
	}
}

// The server stores what differs: parts are compared, and shared with the object before.
func TestAnUpdateThatChangesNothingIsNotStored(t *testing.T) {
	s := newServer("s")
	pod := patchedPod()
	require.NoError(t, s.create("test", pod))
	key := keyOf(pod)
	stored := func() *corev1.Pod {
		found, err := s.find(typeOf[corev1.Pod](), key)
		require.NoError(t, err)
		return found.(*corev1.Pod)
	}
	first := stored()
	update := func(status bool, change func(*corev1.Pod)) {
		_, err := s.update("test", pod, status, func(fresh client.Object) error {
			change(fresh.(*corev1.Pod))
			return nil
		})
		require.NoError(t, err)
	}
	update(false, func(fresh *corev1.Pod) { fresh.Status.Phase = corev1.PodFailed })
	update(true, func(fresh *corev1.Pod) { fresh.Labels, fresh.Spec.NodeName = nil, "other" })
	require.Same(t, first, stored(), "neither is written there")
	update(true, func(fresh *corev1.Pod) { fresh.Status.Phase, fresh.Labels = corev1.PodFailed, nil })
	require.Equal(t, corev1.PodFailed, stored().Status.Phase)
	require.Equal(t, first.Labels, stored().Labels)
	require.EqualValues(t, 1, stored().Generation)
	update(false, func(fresh *corev1.Pod) { fresh.Spec.NodeName, fresh.Status.Phase = "other", corev1.PodRunning })
	require.Equal(t, "other", stored().Spec.NodeName)
	require.Equal(t, corev1.PodFailed, stored().Status.Phase)
	require.EqualValues(t, 2, stored().Generation)
	update(false, func(fresh *corev1.Pod) { fresh.Labels = map[string]string{"app": "b"} })
	require.EqualValues(t, 2, stored().Generation)
	require.Equal(t, "a", first.Labels["app"])

	stale := copyOf(first)
	_, err := s.replace("test", stale, true)
	require.ErrorContains(t, err, "version")
	_, err = s.patch("test", pod, "application/merge-patch+json", []byte(`{"metadata":{"resourceVersion":"1"}}`), false)
	require.ErrorContains(t, err, "version")
	_, err = s.patch("test", pod, "application/strategic-merge-patch+json",
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), true)
	require.NoError(t, err)
	require.Len(t, stored().Status.Conditions, 1)
}
