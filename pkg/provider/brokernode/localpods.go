package brokernode

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/watchlist"
)

// nodeNameField is the field of a pod with which Liqo selects the pods of its node.
const nodeNameField = "spec.nodeName"

// LocalPods returns a client that lists and watches the pods of the view when the pods of Liqo's node are requested.
// The API server filters, so bookmarks and watch-lists need no change. All other requests pass unchanged.
func (v View) LocalPods(client kubernetes.Interface) kubernetes.Interface {
	return localPodsLens{Interface: client, view: v}
}

type localPodsLens struct {
	kubernetes.Interface
	view View
}

// IsWatchListSemanticsUnSupported returns the wrapped client's answer (a fake supports none): embedding the interface
// hides the method.
func (l localPodsLens) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.Interface)
}

func (l localPodsLens) CoreV1() corev1client.CoreV1Interface {
	return localPodsCore{CoreV1Interface: l.Interface.CoreV1(), view: l.view}
}

type localPodsCore struct {
	corev1client.CoreV1Interface
	view View
}

func (c localPodsCore) Pods(namespace string) corev1client.PodInterface {
	return localPods{PodInterface: c.CoreV1Interface.Pods(namespace), view: c.view}
}

type localPods struct {
	corev1client.PodInterface
	view View
}

func (p localPods) List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	opts, err := p.view.podsOf(opts)
	if err != nil {
		return nil, err
	}
	return p.PodInterface.List(ctx, opts)
}

func (p localPods) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	opts, err := p.view.podsOf(opts)
	if err != nil {
		return nil, err
	}
	return p.PodInterface.Watch(ctx, opts)
}

// podsOf converts a request for the pods of Liqo's node into a request for the pods of the view.
func (v View) podsOf(opts metav1.ListOptions) (metav1.ListOptions, error) {
	selector, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return opts, err
	}
	if node, exact := selector.RequiresExactMatch(nodeNameField); !exact || node != v.LiqoNodeName {
		return opts, nil
	}
	selector, err = selector.Transform(func(field, value string) (string, string, error) {
		if field == nodeNameField {
			value = v.Node
		}
		return field, value, nil
	})
	if err != nil {
		return opts, err
	}
	opts.FieldSelector = selector.String()
	opts.LabelSelector, err = narrow(opts.LabelSelector, v.assigned())
	return opts, err
}
