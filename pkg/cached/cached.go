// Package cached has the transforms that reduce objects written by tenants before the broker and the catalog cache
// them. Without them one annotation of 256 KiB on some hundreds of pods fills the memory.
package cached

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel"
	"github.com/capacitorset/liqo-broker-vk/pkg/cel/values"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/constraints"
	"github.com/capacitorset/liqo-broker-vk/pkg/untrusted"
)

const (
	// maxAnnotations is the number of bytes kept of one object's annotations that only expressions read.
	maxAnnotations = 16 << 10
	// maxTries is the number of bytes of the annotation of tries that are read (pkg/backoff).
	maxTries = 32 << 10
)

// omitted stands for a value that is not kept: expressions do not see a text of more than values.MaxText bytes. All
// values share it.
var omitted = strings.Repeat("…", values.MaxText/len("…")+1)

// Pod is a transform for the pods of the broker's node. It drops fields that the broker does not read and that a tenant
// may write at any length: environments, commands, volumes other than claims. Of annotations it keeps all keys, and of their values as
// much as expressions see. The broker patches pods with the fields that it changes, so the fields that are dropped here
// stay at the API server.
func Pod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil // A tombstone, whose object is trimmed already.
	}
	trimMeta(pod)
	spec := &pod.Spec
	spec.Containers, spec.InitContainers = Containers(spec.Containers), Containers(spec.InitContainers)
	spec.EphemeralContainers, spec.HostAliases, spec.ImagePullSecrets = nil, nil, nil
	spec.Volumes = claims(spec.Volumes)
	spec.DNSConfig = nil
	trimConstraints(pod)
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		c.Message = untrusted.Cut(c.Message, untrusted.MaxText)
	}
	return pod, nil
}

// claims returns the volumes that are PersistentVolumeClaims, with their names only.
func claims(volumes []corev1.Volume) []corev1.Volume {
	var trimmed []corev1.Volume
	for i := range volumes {
		v := corev1.Volume{Name: volumes[i].Name}
		switch {
		case volumes[i].PersistentVolumeClaim != nil:
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volumes[i].PersistentVolumeClaim.ClaimName}
		case volumes[i].Ephemeral != nil:
			v.Ephemeral = &corev1.EphemeralVolumeSource{}
		default:
			continue
		}
		trimmed = append(trimmed, v)
	}
	return trimmed
}

// TooLargeAnnotation is set on a cached pod whose affinity and topology spread constraints were dropped because they are
// too large. No object in an API server has it.
const TooLargeAnnotation = "brokering.liqo.io/constraints-too-large"

// trimConstraints drops the constraints of a pod that are too large to be kept.
func trimConstraints(pod *corev1.Pod) {
	delete(pod.Annotations, TooLargeAnnotation)
	if TooLarge(&pod.Spec) {
		pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints = nil, nil, nil
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, TooLargeAnnotation, "true")
	}
}

// TooLarge reports whether a pod's node selector, affinity and topology spread constraints have more than
// constraints.MaxSize bytes.
func TooLarge(spec *corev1.PodSpec) bool {
	size := 0
	for key, value := range spec.NodeSelector {
		size += len(key) + len(value)
	}
	if spec.Affinity != nil {
		size += spec.Affinity.Size()
	}
	for i := range spec.TopologySpreadConstraints {
		size += spec.TopologySpreadConstraints[i].Size()
	}
	return size > constraints.MaxSize
}

// Containers returns the fields of containers that the broker reads: names, images, requests and restart policies.
func Containers(containers []corev1.Container) []corev1.Container {
	var trimmed []corev1.Container
	for i := range containers {
		c := &containers[i]
		trimmed = append(trimmed, corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return trimmed
}

// SelectedNodeAnnotation is the Node that kube-scheduler chose for a claim (plugin VolumeBinding).
const SelectedNodeAnnotation = "volume.kubernetes.io/selected-node"

// Metadata is a transform for objects whose annotations tenants write, and whose values of annotations the broker reads
// in part.
func Metadata(in any) (any, error) {
	if object, err := meta.Accessor(in); err == nil {
		trimMeta(object)
	}
	return in, nil
}

// Volumes are the options of a cache of the PersistentVolumes of the broker's Node.
func Volumes() cache.ByObject {
	return cache.ByObject{Label: labels.SelectorFromSet(labels.Set{v1alpha1.VolumeLabel: "true"}), Transform: Metadata}
}

// Keys is a transform for objects of which the broker reads the keys of labels and annotations only.
func Keys(in any) (any, error) {
	if object, err := meta.Accessor(in); err == nil {
		object.SetManagedFields(nil)
		for key := range object.GetAnnotations() {
			object.GetAnnotations()[key] = ""
		}
	}
	return in, nil
}

func trimMeta(object metav1.Object) {
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	left := maxAnnotations
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[key]
		if most := longest(key); most > 0 {
			if len(value) > most {
				annotations[key] = untrusted.Cut(value, most)
			}
			continue
		}
		if left -= len(value); left < 0 || len(value) > values.MaxText {
			annotations[key] = omitted
		}
	}
}

// longest is the number of bytes kept of an annotation that the broker itself reads; 0 if only expressions read it.
func longest(key string) int {
	switch key {
	case v1alpha1.FilterAnnotation:
		return cel.MaxLength + 1 // So that a longer one is rejected.
	case v1alpha1.TriesAnnotation:
		return maxTries
	case v1alpha1.ConstraintsAnnotation:
		return constraints.MaxSize + 1 // So that longer ones are rejected.
	case v1alpha1.PolicyAnnotation, v1alpha1.FailoverAnnotation, SelectedNodeAnnotation, corev1.BetaStorageClassAnnotation:
		return values.MaxText
	}
	domain, _, _ := strings.Cut(key, "/")
	if domain == "liqo.io" || strings.HasSuffix(domain, ".liqo.io") {
		return values.MaxText
	}
	return 0
}
