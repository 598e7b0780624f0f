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

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/cached"
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
	// Samples is the number of samples kept for each provider; 240 if zero.
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

// CacheOptions are the options of the cache that a View reads. It has only the pods of the node, and of those only the
// metadata, the requests, the constraints, the claims and the status. A read of a kind without an informer, such as
// Secrets, is an error: otherwise it would start an informer and fill the memory.
func CacheOptions(node string) cache.Options {
	return cache.Options{
		DefaultTransform: trim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:                     {Field: fields.OneTermEqualSelector("spec.nodeName", node), Transform: trimPod},
			&corev1.Namespace{}:               {Transform: cached.Metadata},
			&offloadingv1beta1.NamespaceMap{}: {Transform: cached.Metadata},
			&corev1.PersistentVolumeClaim{}:   {Transform: cached.Metadata},
			&corev1.PersistentVolume{}:        cached.Volumes(),
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
	delete(object.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
}

// trimPod keeps only the requests, the constraints and the claims of the spec: environments have secrets of consumers,
// which a process that answers anonymous callers must not have.
func trimPod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	spec := &pod.Spec
	pod.Spec = corev1.PodSpec{
		NodeName: spec.NodeName, Overhead: spec.Overhead, Resources: spec.Resources,
		Containers: cached.Containers(spec.Containers), InitContainers: cached.Containers(spec.InitContainers),
		NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, TopologySpreadConstraints: spec.TopologySpreadConstraints,
		Volumes: spec.Volumes,
	}
	return cached.Pod(pod)
}
