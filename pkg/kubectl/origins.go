package kubectl

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// origins maps namespaces to the consumers that offloaded them.
type origins struct {
	s *Session
	// known is by namespace; the value is a cluster id, or "" for namespaces of this cluster.
	known map[string]string
	// hidden is set when the caller may not read namespaces.
	hidden bool
}

// origins reads one namespace, or all for "". With required it returns the error if the caller may not read them.
func (s *Session) origins(ctx context.Context, namespace string, required bool) (*origins, error) {
	o := &origins{s: s, known: map[string]string{}}
	var err error
	if namespace != "" {
		err = o.read(ctx, namespace)
	} else {
		var found []client.Object
		found, err = s.list(ctx, metadata("NamespaceList"))
		for _, ns := range found {
			o.known[ns.GetName()] = placement.ConsumerOf(ns)
		}
	}
	switch {
	case kerrors.IsForbidden(err) && !required:
		o.hidden = true
		return o, nil
	case kerrors.IsNotFound(err):
		return o, nil // It has no pods either.
	}
	return o, err
}

func (o *origins) read(ctx context.Context, namespace string) error {
	var ns corev1.Namespace
	if err := o.s.get(ctx, client.ObjectKey{Name: namespace}, &ns); err != nil {
		return err
	}
	o.known[namespace] = placement.ConsumerOf(&ns)
	return nil
}

// consumerOf returns the consumer of a namespace, which is read if it is not known.
func (o *origins) consumerOf(ctx context.Context, namespace string) string {
	if o.hidden {
		return unknown
	}
	if _, ok := o.known[namespace]; !ok && o.read(ctx, namespace) != nil {
		return unknown
	}
	return o.known[namespace]
}

// metadata returns an empty list of a core kind that reads the metadata only.
func metadata(listKind string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(listKind))
	return list
}
