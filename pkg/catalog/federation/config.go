package federation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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

// Config is what a View is told.
type Config struct {
	// Node is the broker's node: only its pods are shown.
	Node string
	// Clock is the real one if nil.
	Clock clock.WithTicker
	// SampleEvery is how far apart the samples of the history are; 30 s if zero.
	SampleEvery time.Duration
	// Samples is how many are kept of every provider; 240 if zero.
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

// CacheOptions are those of the cache that a View reads: of pods those of the node, and of these no more than says what
// they are, where they are, and what they request. The cache reads no kind that nobody has asked an informer of, Secrets
// for one: a read of them is an error, as it would fill the memory with all there are.
func CacheOptions(node string) cache.Options {
	return cache.Options{
		DefaultTransform: trim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", node), Transform: trimPod},
		},
		ReaderFailOnMissingInformer: true,
	}
}

// trim is a transform that leaves out what repeats the object: who wrote which field, and what kubectl applied.
func trim(in any) (any, error) {
	object, err := meta.Accessor(in)
	if err != nil {
		return in, nil //nolint:nilerr // It is the mark of a deleted object, which was trimmed when it came.
	}
	object.SetManagedFields(nil)
	if annotations := object.GetAnnotations(); annotations != nil {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
	}
	return in, nil
}

// trimPod is trim for pods. Of the spec it keeps what pods request: environments hold secrets of consumers, which have no
// place in a process that answers strangers.
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
	return trim(in)
}

func trimContainers(containers []corev1.Container) []corev1.Container {
	var trimmed []corev1.Container
	for i := range containers {
		c := &containers[i]
		trimmed = append(trimmed, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
	}
	return trimmed
}
