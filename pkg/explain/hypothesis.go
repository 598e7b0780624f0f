package explain

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// Hypothesis is a pod that does not exist.
type Hypothesis struct {
	// Namespace exists.
	Namespace           string
	Labels, Annotations map[string]string
	Requests            corev1.ResourceList
	// Policy is used for the pod, regardless of its selectors; nil for the policy that matches the pod.
	Policy *v1alpha1.PlacementPolicySpec
}

// Suppose explains a pod as if it were created now. The selection of its consumer counts as well.
//
// It returns a *PolicyError if the policy is not valid, an ErrBusy, and the API's NotFound error for the namespace.
func (e *Explainer) Suppose(ctx context.Context, h *Hypothesis) (*Explanation, error) {
	namespace, err := e.namespace(ctx, h.Namespace)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Labels: h.Labels, Annotations: h.Annotations},
		Spec: corev1.PodSpec{NodeName: e.node, Containers: []corev1.Container{
			{Name: "pod", Resources: corev1.ResourceRequirements{Requests: h.Requests}},
		}},
	}
	done, err := e.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	asked, err := e.criteria(ctx, pod, namespace, h.Policy)
	return e.explain(ctx, &Explanation{Providers: []Choice{}}, pod, namespace, &asked, err)
}

func (e *Explainer) criteria(ctx context.Context, pod *corev1.Pod, namespace *corev1.Namespace,
	spec *v1alpha1.PlacementPolicySpec,
) (placement.Criteria, error) {
	if spec == nil {
		return e.policies.CriteriaOf(ctx, pod, namespace)
	}
	if faults := e.validate(spec); len(faults) > 0 {
		return placement.Criteria{}, &PolicyError{Faults: faults}
	}
	return e.policies.CriteriaUnder(ctx, pod, namespace, &v1alpha1.PlacementPolicy{Spec: *spec})
}
