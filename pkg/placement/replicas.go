package placement

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// defaultMaxUnavailable is the percentage of the replicas that may be unavailable, unless a policy sets another limit.
const defaultMaxUnavailable = "25%"

// maxMaxUnavailable is the greatest number in the CRD.
const maxMaxUnavailable = 1000000

// ReplicasOf returns a key that the replicas of a pod share in its namespace: pods with the same labels, apart from
// labels that differ by replica or revision. A pod without other labels is the only one of its key. Owners cannot be
// used: the pods of a consumer are each owned by a ShadowPod of their own, with the labels of the consumer's pod and
// Liqo's (RemoteShadowPod in Liqo's pkg/virtualKubelet/forge; shadowpod-controller). The key has a fixed length, as
// labels are chosen by consumers.
func ReplicasOf(pod *corev1.Pod) string {
	shared := maps.Clone(pod.Labels)
	maps.DeleteFunc(shared, func(key, _ string) bool { return tellsReplicasApart(key) })
	if len(shared) == 0 {
		return "pod/" + pod.Name
	}
	sum := sha256.Sum256([]byte(labels.FormatLabels(shared)))
	return "labels/" + hex.EncodeToString(sum[:])
}

// tellsReplicasApart reports whether a label may differ between the replicas of an application: it is Kubernetes' own
// label for that, or a label of Liqo or of this project, which depends on the path of a pod.
func tellsReplicasApart(key string) bool {
	prefix, _, _ := strings.Cut(key, "/")
	if prefix == "liqo.io" || strings.HasSuffix(prefix, ".liqo.io") {
		return true
	}
	return slices.Contains([]string{
		appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey, appsv1.StatefulSetPodNameLabel,
		appsv1.PodIndexLabel, batchv1.JobCompletionIndexAnnotation,
	}, key)
}

// Available reports whether a pod serves: it is Ready at a provider, and is not being moved away or deleted.
func Available(pod *corev1.Pod) bool {
	return Ready(pod) && pod.Labels[v1alpha1.VirtualNodeLabel] != "" && pod.DeletionTimestamp == nil
}

// Replicates reports whether a pod counts as a replica at now. A pod that has ended does not, nor does a pod that is
// being deleted after its grace period, which is over at the time of its deletion: such a pod may stay for as long as
// its provider is unreachable, and has been replaced.
func Replicates(pod *corev1.Pod, now time.Time) bool {
	return !Terminal(pod) && (pod.DeletionTimestamp == nil || now.Before(pod.DeletionTimestamp.Time))
}

// Unavailable returns how many of so many replicas may be unavailable because of planned moves: at least one.
func (r *Rules) Unavailable(replicas int) int {
	limit := intstr.FromString(defaultMaxUnavailable)
	if r.MaxUnavailable != nil {
		limit = *r.MaxUnavailable
	}
	scaled, err := intstr.GetScaledValueFromIntOrPercent(&limit, replicas, false)
	if err != nil {
		return 1 // ValidateMaxUnavailable rejects it.
	}
	return max(1, scaled)
}

// ValidateMaxUnavailable returns the fault of a limit; nil is none. The CRD has the same rule.
func ValidateMaxUnavailable(limit *intstr.IntOrString) error {
	if limit == nil {
		return nil
	}
	number, most := limit.IntVal, int32(maxMaxUnavailable)
	if limit.Type == intstr.String {
		percent, err := strconv.ParseInt(strings.TrimSuffix(limit.StrVal, "%"), 10, 32)
		if err != nil || limit.StrVal != fmt.Sprintf("%d%%", percent) {
			percent = 0
		}
		number, most = int32(percent), 100
	}
	if number < 1 || number > most {
		return fmt.Errorf("must be a number from 1 to %d, or a percentage from 1%% to 100%%", maxMaxUnavailable)
	}
	return nil
}
