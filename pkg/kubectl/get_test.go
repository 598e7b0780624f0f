package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

func TestStatusOfAProvider(t *testing.T) {
	off := false
	for want, change := range map[string]func(*v1alpha1.ProviderCluster){
		"Ready":                       func(*v1alpha1.ProviderCluster) {},
		"Unknown":                     func(pc *v1alpha1.ProviderCluster) { pc.Status.Conditions = nil },
		"NotReady":                    func(pc *v1alpha1.ProviderCluster) { pc.Status.Conditions[0].Status = metav1.ConditionFalse },
		"Ready,Disabled":              func(pc *v1alpha1.ProviderCluster) { pc.Spec.Enabled = &off },
		"Ready,Cordoned,Draining":     func(pc *v1alpha1.ProviderCluster) { pc.Spec.Cordoned, pc.Spec.Drain = true, true },
		"NotReady,Recovering":         func(pc *v1alpha1.ProviderCluster) { recovering(pc, metav1.ConditionFalse) },
		"Unknown,Recovering,Draining": func(pc *v1alpha1.ProviderCluster) { recovering(pc, metav1.ConditionUnknown); pc.Spec.Drain = true },
	} {
		t.Run(want, func(t *testing.T) {
			pc := provider("p1")
			change(pc)
			require.Equal(t, want, providerStatus(pc))
		})
	}
}

func recovering(pc *v1alpha1.ProviderCluster, ready metav1.ConditionStatus) {
	pc.Status.Conditions[0].Status = ready
	pc.Status.Conditions = append(pc.Status.Conditions,
		metav1.Condition{Type: v1alpha1.ProviderClean, Status: metav1.ConditionFalse, Message: "pods are left"})
}

func TestStatusOfAPlacement(t *testing.T) {
	now := metav1.Now()
	for want, change := range map[string]func(*corev1.Pod){
		"Running":     func(*corev1.Pod) {},
		"Pending":     func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending },
		"Succeeded":   func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded; pod.Labels = nil },
		"Terminating": func(pod *corev1.Pod) { pod.DeletionTimestamp = &now },
		"Unreachable": func(pod *corev1.Pod) { pod.Annotations[v1alpha1.UnreachableAnnotation] = "2025-06-01T12:00:00Z" },
		"Moving":      func(pod *corev1.Pod) { leave(pod, "p1") },
		"Waiting":     func(pod *corev1.Pod) { pod.Labels = nil },
	} {
		t.Run(want, func(t *testing.T) {
			pod := placed("a", "p1")
			change(pod)
			require.Equal(t, want, podStatus(pod))
		})
	}
}

func TestDecision(t *testing.T) {
	for text, want := range map[string][2]string{
		"p1 84: price 29, free 26": {"84", "price 29, free 26"},
		"p1 0":                     {"0", none},
		"by hand":                  {unknown, "by hand"},
		"":                         {unknown, unknown},
	} {
		t.Run(text, func(t *testing.T) {
			pod := placed("a", "p1")
			pod.Annotations[v1alpha1.DecisionAnnotation] = text
			score, why := decision(pod)
			require.Equal(t, want, [2]string{score, why})
		})
	}
}

func TestObjectsAreThoseOfTheAPI(t *testing.T) {
	managed := []metav1.ManagedFieldsEntry{{Manager: "m"}}
	s, screen := at(t, interceptor.Funcs{
		Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			defer o.SetManagedFields(managed)
			return under.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, under client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := under.List(ctx, list, opts...)
			for i := range list.(*v1alpha1.ProviderClusterList).Items {
				list.(*v1alpha1.ProviderClusterList).Items[i].ManagedFields = managed
			}
			return err
		},
	}, provider("p1"), provider("p2"))
	type shown struct {
		APIVersion, Kind string
		Metadata         struct {
			Name          string
			ManagedFields []any
		}
		Items []shown
	}
	read := func(q Query) (all shown) {
		require.NoError(t, s.GetProviders(t.Context(), q))
		decode := json.Unmarshal
		if q.Output == outputYAML {
			decode = func(b []byte, into any) error { return yaml.Unmarshal(b, into) }
		}
		require.NoError(t, decode(screen.text.Bytes(), &all))
		screen.lines()
		return all
	}
	for _, output := range []string{outputJSON, outputYAML} {
		several := read(Query{Output: output})
		require.Equal(t, "v1 List", several.APIVersion+" "+several.Kind)
		require.Len(t, several.Items, 2)
		for i, item := range append(several.Items, read(Query{Output: output, Names: []string{"p1"}})) {
			require.Equal(t, "brokering.liqo.io/v1alpha1 ProviderCluster", item.APIVersion+" "+item.Kind)
			require.Equal(t, []string{"p1", "p2", "p1"}[i], item.Metadata.Name)
			require.Empty(t, item.Metadata.ManagedFields)
		}
		none := read(Query{Output: output, Labels: labels.SelectorFromSet(labels.Set{"no": "such"})})
		require.Equal(t, "v1 List", none.APIVersion+" "+none.Kind)
		require.NotNil(t, none.Items)
		require.Empty(t, none.Items)
	}
}

func TestWhatCannotBeAsked(t *testing.T) {
	s, screen := at(t, interceptor.Funcs{}, provider("p1"), placed("a", "p1"))
	some := labels.SelectorFromSet(labels.Set{"a": "b"})
	for message, ask := range map[string]func() error{
		"names cannot be combined with --selector": func() error {
			return s.GetProviders(t.Context(), Query{Names: []string{"p1"}, Labels: some})
		},
		"names cannot be combined with --all-namespaces": func() error {
			return s.GetPlacements(t.Context(), Query{Names: []string{"a"}, AllNamespaces: true})
		},
		"--output=xml: use one of json, name, wide, yaml": func() error { return s.GetProviders(t.Context(), Query{Output: "xml"}) },
		"--provider=p/1": func() error { return s.GetPlacements(t.Context(), Query{Provider: "p/1"}) },
		"a is not bound to node another (--broker-node), or does not match --provider and --consumer": func() error {
			return s.GetPlacements(t.Context(), Query{Names: []string{"a"}, Node: "another"})
		},
	} {
		t.Run(message, func(t *testing.T) {
			require.ErrorContains(t, ask(), message)
			require.Empty(t, screen.lines())
		})
	}
}

func TestWhatIsFoundIsShownBesideWhatIsNot(t *testing.T) {
	s, screen := at(t, interceptor.Funcs{}, provider("p1"))
	err := s.GetProviders(t.Context(), Query{Names: []string{"p9", "p1", "p8"}, NoHeaders: true})
	require.Equal(t, []string{
		`Error from server (NotFound): providerclusters.brokering.liqo.io "p9" not found`,
		`Error from server (NotFound): providerclusters.brokering.liqo.io "p8" not found`,
	}, Words(err))
	require.Len(t, screen.lines(), 1)
}

func TestASelectionIsAllThatCounts(t *testing.T) {
	policy := func(name string, selection v1alpha1.Selection, consumers ...string) *v1alpha1.PlacementPolicy {
		return &v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PlacementPolicySpec{Consumers: consumers, Selection: &selection},
		}
	}
	s, _ := at(t, interceptor.Funcs{},
		policy("selection-c1", v1alpha1.Selection{Mode: v1alpha1.SelectAllBut, Providers: []string{"p1"}}, "c1"),
		policy("by-hand", v1alpha1.Selection{Mode: v1alpha1.SelectOnly, Providers: []string{"p1", "p2"}}, "c1", "c2"),
		&v1alpha1.PlacementPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: v1alpha1.PlacementPolicySpec{Consumers: []string{"c1"}},
		})
	for consumer, want := range map[string][]bool{"c1": {false, true, false}, "c2": {true, true, false}, "c3": {true, true, true}} {
		selected, err := s.selectedBy(t.Context(), consumer)
		require.NoError(t, err)
		require.Equal(t, want, []bool{selected("p1"), selected("p2"), selected("p3")}, consumer)
	}
}

// Many objects come in pages, and are one list in the end.
func TestLongListsComeInPages(t *testing.T) {
	const total, most = 1234, pageSize
	var asked []string
	s, screen := at(t, interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			o := (&client.ListOptions{}).ApplyOptions(opts)
			asked = append(asked, fmt.Sprintf("%d from %q", o.Limit, o.Continue))
			from := 0
			_, _ = fmt.Sscan(o.Continue, &from)
			providers := list.(*v1alpha1.ProviderClusterList)
			for i := from; i < min(from+most, total); i++ {
				providers.Items = append(providers.Items, *provider(fmt.Sprintf("p%04d", total-i)))
			}
			if from+most < total {
				providers.Continue = fmt.Sprint(from + most)
			}
			return nil
		},
	})
	require.NoError(t, s.GetProviders(t.Context(), Query{Output: outputName}))
	require.Equal(t, []string{`500 from ""`, `500 from "500"`, `500 from "1000"`}, asked)
	lines := screen.lines()
	require.Len(t, lines, total)
	require.Equal(t, "providercluster.brokering.liqo.io/p0001", lines[0])
}

func TestGetPlacementsWithoutRightsToNamespaces(t *testing.T) {
	forbid := interceptor.Funcs{
		Get: func(ctx context.Context, under client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Namespace); ok {
				return kerrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, key.Name, errors.New("no"))
			}
			return under.Get(ctx, key, o, opts...)
		},
	}
	s, screen := at(t, forbid, consumers("ns", "c1"), placed("a", "p1"))
	require.NoError(t, s.GetPlacements(t.Context(), Query{Node: "broker", NoHeaders: true}))
	require.Equal(t, []string{"a 0/1 Running <unknown> p1 80 <unknown> <unknown>"}, screen.lines())
	require.True(t, kerrors.IsForbidden(s.GetPlacements(t.Context(), Query{Node: "broker", Consumer: "c1"})))
}

func TestEveryRequestHasADeadline(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, do := range map[string]func(context.Context, *Session) error{
		"a list":   func(ctx context.Context, s *Session) error { return s.GetProviders(ctx, Query{}) },
		"a name":   func(ctx context.Context, s *Session) error { return s.GetProviders(ctx, Query{Names: []string{"p1"}}) },
		"a pod":    func(ctx context.Context, s *Session) error { return s.Explain(ctx, "broker", "a", outputTable) },
		"a change": func(ctx context.Context, s *Session) error { return s.Cordon(ctx, []string{"p1"}) },
		"a choice": func(ctx context.Context, s *Session) error { return s.Select(ctx, "c1", []string{"p1"}, true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := at(t, interceptor.Funcs{
					Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
						return hang(ctx)
					},
					List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
						return hang(ctx)
					},
				})
				began := time.Now()
				words := Words(do(t.Context(), s))
				require.Len(t, words, 1)
				require.Contains(t, words[0], "request timed out (--request-timeout)")
				require.LessOrEqual(t, time.Since(began), s.RequestTimeout)

				end := begin(t, func(ctx context.Context) error { return do(ctx, s) })
				require.Equal(t, []string{"error: interrupted"}, Words(end()))
			})
		})
	}
}

func TestNothingPrintsControlCharacters(t *testing.T) {
	const hostile = "\x1b[2J\x00\a\r\u202e\u200b\u009b\u2028<b>"
	pod, failed, pc := placed("a", ""), placed("b", "p1"), provider("p1")
	pod.Annotations[v1alpha1.FilterAnnotation] = hostile + "provider.nope"
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: v1alpha1.ConditionAssigned, Status: corev1.ConditionFalse, Message: hostile + "mischief",
	}}
	failed.Status.Phase, failed.Annotations[v1alpha1.DecisionAnnotation] = hostile, hostile
	pc.Spec.Attributes = map[string]string{"price": hostile, "region": hostile}
	pc.Status.Conditions[0].Status, pc.Status.Conditions[0].Message = metav1.ConditionFalse, hostile
	pc.Status.Summary.CPU, pc.Status.VirtualNodes[0].Reason = hostile, hostile
	refused := kerrors.NewBadRequest(hostile)
	for name, do := range map[string]func(*Session) error{
		"providers":   func(s *Session) error { return s.GetProviders(t.Context(), Query{Output: outputWide}) },
		"placements":  func(s *Session) error { return s.GetPlacements(t.Context(), Query{Node: "broker", Output: outputWide}) },
		"explain":     func(s *Session) error { return s.Explain(t.Context(), "broker", "a", outputTable) },
		"explain all": func(s *Session) error { return s.Explain(t.Context(), "broker", "a", outputWide) },
		"an error": func(s *Session) error {
			_, err := fmt.Fprintln(s.Err, Words(refused))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, screen := at(t, interceptor.Funcs{}, consumers("ns", "c1"), pod.DeepCopy(), failed.DeepCopy(), pc.DeepCopy())
			require.NoError(t, do(s))
			require.Contains(t, screen.text.String(), "[2J")
			for _, r := range screen.text.String() {
				require.True(t, unicode.IsPrint(r) || r == '\n', "%q in %q", r, screen.text.String())
			}
		})
	}
}

func TestSlicesAndTheirReasons(t *testing.T) {
	pc := provider("p1")
	pc.Status.VirtualNodes = []v1alpha1.VirtualNodeStatus{
		{Name: "a", Ready: true}, {Name: "b", Ready: true, Reason: "terminating"}, {Name: "c", Reason: "not ready"},
	}
	require.Equal(t, "1/3", slicesReady(pc))
	require.Equal(t, "b: terminating, c: not ready", message(pc))
	pc.Status.Conditions[0].Status, pc.Status.Conditions[0].Message = metav1.ConditionFalse, "Reachable: NoAnswer"
	require.Equal(t, "Reachable: NoAnswer", message(pc), "the provider's own reason comes first")
}
