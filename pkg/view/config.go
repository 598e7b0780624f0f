package view

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	defaultSampleEvery = 30 * time.Second
	// defaultSamples are two hours, at the default rate.
	defaultSamples = 240
)

// Config configures a View.
type Config struct {
	// Node is the broker's node: only its pods are shown.
	Node string
	// Clock is the real one if nil.
	Clock clock.WithTicker
	// SampleEvery is the interval of the samples in the histories; 30 s if zero.
	SampleEvery time.Duration
	// Samples is how many are kept for each provider; 240 if zero.
	Samples int
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.SampleEvery <= 0 {
		c.SampleEvery = defaultSampleEvery
	}
	if c.Samples <= 0 {
		c.Samples = defaultSamples
	}
	return c
}

// CacheOptions are those of the cache that a View reads. It has the pods of the node only, and of them the metadata, the
// requests and the status. A read of a kind without an informer, such as Secrets, is an error: it would start one and fill
// the memory.
func CacheOptions(node string) cache.Options {
	return cache.Options{
		DefaultTransform: trim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", node), Transform: trimPod},
		},
		ReaderFailOnMissingInformer: true,
	}
}

// trim is a transform that removes the managed fields, and the copy that kubectl apply makes of the object.
func trim(in any) (any, error) {
	if object, err := meta.Accessor(in); err == nil { // Otherwise it is a tombstone, whose object is trimmed already.
		trimMeta(object)
	}
	return in, nil
}

func trimMeta(object metav1.Object) {
	object.SetManagedFields(nil)
	if annotations := object.GetAnnotations(); annotations != nil {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
	}
}

// trimPod is trim for pods. Of the spec it keeps the requests: environments have secrets of consumers, which a process
// that answers anonymous callers must not have.
func trimPod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	spec := &pod.Spec
	pod.Spec = corev1.PodSpec{
		NodeName: spec.NodeName, Overhead: spec.Overhead, Resources: spec.Resources,
		Containers: trimContainers(spec.Containers), InitContainers: trimContainers(spec.InitContainers),
	}
	trimMeta(pod)
	return in, nil
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	var trimmed []corev1.Container
	for i := range containers {
		c := &containers[i]
		trimmed = append(trimmed, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return trimmed
}
