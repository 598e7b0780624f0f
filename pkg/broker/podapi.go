package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node/api"
	statsv1alpha1 "github.com/virtual-kubelet/virtual-kubelet/node/api/statsv1alpha1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// podAPI answers the kubelet API's questions about a pod from the provider where it runs. It is the PodHandler of
// pkg/kubeletapi.
type podAPI struct{ broker *Broker }

// place is where a pod runs: by what connection it is reached, and in which namespace there.
type place struct {
	*connection
	namespace string
}

// find says where a pod of this node runs.
func (a podAPI) find(ctx context.Context, namespace, name string) (place, error) {
	var pod corev1.Pod
	err := a.broker.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &pod)
	if kerrors.IsNotFound(err) {
		// virtual-kubelet's errors become the status codes of the kubelet API; they follow Cause, not Unwrap.
		return place{}, errdefs.NotFoundf("pod %s/%s is not one of node %s", namespace, name, a.broker.cfg.NodeName)
	}
	if err != nil {
		return place{}, err
	}
	virtualNode := pod.Labels[v1alpha1.VirtualNodeLabel]
	if virtualNode == "" {
		return place{}, errdefs.InvalidInputf("pod %s/%s is not assigned to a provider yet", namespace, name)
	}
	c := a.broker.connections.get(virtualNode)
	remote, _ := a.broker.remoteNamespace(virtualNode, namespace)
	if c == nil || remote == "" {
		return place{}, fmt.Errorf("the provider of VirtualNode %s is not connected", virtualNode)
	}
	return place{connection: c, namespace: remote}, nil
}

// List implements workload.PodHandler.
func (a podAPI) List(ctx context.Context) ([]*corev1.Pod, error) {
	var pods corev1.PodList
	if err := a.broker.client.List(ctx, &pods); err != nil {
		return nil, err
	}
	list := make([]*corev1.Pod, 0, len(pods.Items))
	for i := range pods.Items {
		list = append(list, &pods.Items[i])
	}
	return list, nil
}

// Logs implements workload.PodHandler.
func (a podAPI) Logs(ctx context.Context, namespace, pod, container string, opts api.ContainerLogOpts) (io.ReadCloser, error) {
	at, err := a.find(ctx, namespace, pod)
	if err != nil {
		return nil, err
	}
	options := &corev1.PodLogOptions{
		Container: container, Follow: opts.Follow, Previous: opts.Previous, Timestamps: opts.Timestamps,
		LimitBytes: unlessZero(opts.LimitBytes), SinceSeconds: unlessZero(opts.SinceSeconds), TailLines: unlessZero(opts.Tail),
	}
	if !opts.SinceTime.IsZero() {
		since := metav1.NewTime(opts.SinceTime)
		options.SinceTime = &since
	}
	return at.kube.CoreV1().Pods(at.namespace).GetLogs(pod, options).Stream(ctx)
}

func unlessZero(n int) *int64 {
	if n == 0 {
		return nil
	}
	value := int64(n)
	return &value
}

// Exec implements workload.PodHandler.
func (a podAPI) Exec(ctx context.Context, namespace, pod, container string, cmd []string, attach api.AttachIO) error {
	return a.stream(ctx, namespace, pod, "exec", attach, &corev1.PodExecOptions{
		Container: container, Command: cmd, TTY: attach.TTY(),
		Stdin: attach.Stdin() != nil, Stdout: attach.Stdout() != nil, Stderr: attach.Stderr() != nil,
	})
}

// Attach implements workload.PodHandler.
func (a podAPI) Attach(ctx context.Context, namespace, pod, container string, attach api.AttachIO) error {
	return a.stream(ctx, namespace, pod, "attach", attach, &corev1.PodAttachOptions{
		Container: container, TTY: attach.TTY(),
		Stdin: attach.Stdin() != nil, Stdout: attach.Stdout() != nil, Stderr: attach.Stderr() != nil,
	})
}

func (a podAPI) stream(ctx context.Context, namespace, pod, what string, attach api.AttachIO, options runtime.Object) error {
	at, err := a.find(ctx, namespace, pod)
	if err != nil {
		return err
	}
	request := at.subresource(pod, what, options)
	executor, err := remotecommand.NewSPDYExecutor(at.config, http.MethodPost, request)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdin: attach.Stdin(), Stdout: attach.Stdout(), Stderr: attach.Stderr(), Tty: attach.TTY(),
		TerminalSizeQueue: sizes{ctx: ctx, resize: attach.Resize()},
	})
	if ctx.Err() != nil {
		return nil
	}
	return err //nolint:wrapcheck // virtual-kubelet looks for the exit code in the error as it is, not in what it wraps.
}

// subresource is the address of a subresource of a pod.
func (p place) subresource(pod, name string, options runtime.Object) *url.URL {
	return p.kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.namespace).Name(pod).
		SubResource(name).VersionedParams(options, scheme.ParameterCodec).URL()
}

// sizes passes the sizes of the caller's terminal on.
type sizes struct {
	ctx    context.Context //nolint:containedctx // remotecommand's interface has none.
	resize <-chan api.TermSize
}

// Next implements remotecommand.TerminalSizeQueue.
func (s sizes) Next() *remotecommand.TerminalSize {
	select {
	case size, ok := <-s.resize:
		if ok {
			return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
		}
		return nil
	case <-s.ctx.Done():
		return nil
	}
}

// PortForward implements workload.PodHandler: it joins a stream with one port of a pod.
func (a podAPI) PortForward(ctx context.Context, namespace, pod string, port int32, stream io.ReadWriteCloser) error {
	at, err := a.find(ctx, namespace, pod)
	if err != nil {
		return err
	}
	transport, upgrader, err := spdy.RoundTripperFor(at.config)
	if err != nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	request := at.subresource(pod, "portforward", &corev1.PodPortForwardOptions{Ports: []int32{port}})
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, request)
	connection, _, err := dialer.Dial("portforward.k8s.io")
	if err != nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	defer func() { _ = connection.Close() }()

	// The protocol: an error stream that says at the end what went wrong, and a data stream, for each connection.
	header := http.Header{}
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	header.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	problems, err := connection.CreateStream(header)
	if err != nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	_ = problems.Close() // Nothing is written to it.
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(header)
	if err != nil {
		return fmt.Errorf("port-forward: %w", err)
	}

	stop := context.AfterFunc(ctx, func() { _ = connection.Close(); _ = stream.Close() })
	defer stop()
	problem := make(chan error, 1)
	go func() {
		text, err := io.ReadAll(problems)
		if err == nil && len(text) > 0 {
			err = errors.New(string(text))
		}
		problem <- err
	}()
	go func() {
		defer func() { _ = data.Close() }() // Half: the answer may still come.
		_, _ = io.Copy(data, stream)
	}()
	_, _ = io.Copy(stream, data)
	_ = connection.Close()
	if err := <-problem; err != nil && ctx.Err() == nil {
		return fmt.Errorf("port-forward: %w", err)
	}
	return nil
}

// statsTimeout bounds the question for usage to one provider.
const statsTimeout = 10 * time.Second

// Stats implements workload.PodHandler: what the providers' metrics servers measure of the pods assigned there. A
// provider that does not answer is left out.
func (a podAPI) Stats(ctx context.Context) (*statsv1alpha1.Summary, error) {
	var list corev1.PodList
	if err := a.broker.client.List(ctx, &list); err != nil {
		return nil, err
	}
	assigned := map[string]map[string]map[string]*corev1.Pod{}
	for i := range list.Items {
		pod := &list.Items[i]
		virtualNode := pod.Labels[v1alpha1.VirtualNodeLabel]
		if virtualNode == "" || placement.Terminal(pod) {
			continue
		}
		if assigned[virtualNode] == nil {
			assigned[virtualNode] = map[string]map[string]*corev1.Pod{}
		}
		if assigned[virtualNode][pod.Namespace] == nil {
			assigned[virtualNode][pod.Namespace] = map[string]*corev1.Pod{}
		}
		assigned[virtualNode][pod.Namespace][pod.Name] = pod
	}

	var mu sync.Mutex
	var all []statsv1alpha1.PodStats
	var asking sync.WaitGroup
	for virtualNode, namespaces := range assigned {
		asking.Add(1)
		go func() {
			defer asking.Done()
			stats := a.usage(ctx, virtualNode, namespaces)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, stats...)
		}()
	}
	asking.Wait()
	return forge.LocalNodeStats(all), nil
}

func (a podAPI) usage(ctx context.Context, virtualNode string, namespaces map[string]map[string]*corev1.Pod) []statsv1alpha1.PodStats {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	c := a.broker.connections.get(virtualNode)
	if c == nil {
		return nil
	}
	var stats []statsv1alpha1.PodStats
	for namespace, pods := range namespaces {
		remote, _ := a.broker.remoteNamespace(virtualNode, namespace)
		if remote == "" {
			continue
		}
		measured, err := c.metrics.MetricsV1beta1().PodMetricses(remote).
			List(ctx, metav1.ListOptions{LabelSelector: forge.ReflectedLabelSelector().String()})
		if err != nil {
			a.broker.log.V(1).Info("Cannot read the usage of a provider's pods", "virtualNode", virtualNode, "because", err.Error())
			continue
		}
		for i := range measured.Items {
			if pod, ok := pods[measured.Items[i].Name]; ok {
				stats = append(stats, forge.LocalPodStats(pod, &measured.Items[i]))
			}
		}
	}
	return stats
}

// scrape answers /metrics/resource and the like: what Liqo's metric agents at all providers measure, as one text. A
// provider that does not answer is left out.
func (a podAPI) scrape(ctx context.Context, uri *url.URL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	type answer struct {
		text []byte
		err  error
	}
	connected := a.broker.oneConnectionEach()
	answers := make(chan answer, len(connected))
	for _, c := range connected {
		go func() {
			text, err := kubeletapi.RemoteScrape(c.kube, liqov1beta1.ClusterID(a.broker.clusterID(ctx)))(ctx, uri)
			answers <- answer{text: text, err: err}
		}()
	}
	merged := map[string]*dto.MetricFamily{}
	for range connected {
		got := <-answers
		if got.err != nil {
			a.broker.log.V(1).Info("Cannot scrape a provider", "because", got.err.Error())
			continue
		}
		if err := mergeMetrics(merged, got.text); err != nil {
			a.broker.log.Info("A provider's metrics are not valid", "because", err.Error())
		}
	}
	return encodeMetrics(merged)
}

func mergeMetrics(into map[string]*dto.MetricFamily, text []byte) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return err
	}
	for name, family := range families {
		if known, ok := into[name]; ok {
			known.Metric = append(known.Metric, family.Metric...)
			continue
		}
		into[name] = family
	}
	return nil
}

// encodeMetrics writes metric families in Prometheus' text format, by name.
func encodeMetrics(families map[string]*dto.MetricFamily) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if _, err := expfmt.MetricFamilyToText(&out, families[name]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
