// Package remotetest has the clients of a provider in memory, for tests of those who ask one.
package remotetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	liqoclient "github.com/liqotech/liqo/pkg/client/clientset/versioned"
	offloadingclient "github.com/liqotech/liqo/pkg/client/clientset/versioned/typed/offloading/v1beta1"
)

// Kube returns a client of Kubernetes whose lists of pods are also answered as JSON, which the fakes of client-go are
// not.
func Kube(fake kubernetes.Interface) kubernetes.Interface {
	return kube{Interface: fake, lists: lists(func(ctx context.Context, namespace string, options metav1.ListOptions) (any, error) {
		return fake.CoreV1().Pods(namespace).List(ctx, options)
	})}
}

// Liqo is Kube for ShadowPods.
func Liqo(fake liqoclient.Interface) liqoclient.Interface {
	return liqo{Interface: fake, lists: lists(func(ctx context.Context, namespace string, options metav1.ListOptions) (any, error) {
		return fake.OffloadingV1beta1().ShadowPods(namespace).List(ctx, options)
	})}
}

type kube struct {
	kubernetes.Interface
	lists rest.Interface
}

func (k kube) CoreV1() corev1client.CoreV1Interface { return core{k.Interface.CoreV1(), k.lists} }

type core struct {
	corev1client.CoreV1Interface
	lists rest.Interface
}

func (c core) RESTClient() rest.Interface { return c.lists }

type liqo struct {
	liqoclient.Interface
	lists rest.Interface
}

func (l liqo) OffloadingV1beta1() offloadingclient.OffloadingV1beta1Interface {
	return offloading{l.Interface.OffloadingV1beta1(), l.lists}
}

type offloading struct {
	offloadingclient.OffloadingV1beta1Interface
	lists rest.Interface
}

func (o offloading) RESTClient() rest.Interface { return o.lists }

// lists is an http.RoundTripper's answer to a request for a list.
func lists(list func(ctx context.Context, namespace string, options metav1.ListOptions) (any, error)) rest.Interface {
	answer := func(r *http.Request) (*http.Response, error) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // namespaces/NAMESPACE/RESOURCE
		query := r.URL.Query()
		answer, err := list(r.Context(), parts[len(parts)-2], metav1.ListOptions{
			LabelSelector: query.Get("labelSelector"), FieldSelector: query.Get("fieldSelector"),
		})
		return answerOf(answer, err)
	}
	return restClient(answer)
}

// answerOf returns the response of an API server.
func answerOf(answer any, err error) (*http.Response, error) {
	code := http.StatusOK
	if status := (*kerrors.StatusError)(nil); errors.As(err, &status) {
		said := status.ErrStatus
		said.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		answer, code = said, int(said.Code)
	} else if err != nil {
		return nil, err
	}
	text, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)),
	}, err
}

// Probes returns a client for probes of an API server that is ready and has no pod, unless the fake fails to read the
// version.
func Probes(fake kubernetes.Interface) rest.Interface {
	return restClient(func(r *http.Request) (*http.Response, error) {
		if _, err := fake.Discovery().ServerVersion(); err != nil {
			return nil, err
		}
		if r.URL.Path == "/readyz" {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok"))}, nil
		}
		return answerOf(nil, kerrors.NewNotFound(schema.GroupResource{Resource: "pods"}, path.Base(r.URL.Path)))
	})
}

// restClient is not client-go's fake of a REST client, which writes down the last request without a lock.
func restClient(answer roundTripper) rest.Interface {
	client, err := rest.NewRESTClient(&url.URL{Scheme: "http", Host: "provider"}, "", rest.ClientContentConfig{
		GroupVersion: schema.GroupVersion{Version: "v1"},
		Negotiator:   runtime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), schema.GroupVersion{Version: "v1"}),
	}, nil, &http.Client{Transport: answer})
	if err != nil {
		panic(err)
	}
	return client
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
