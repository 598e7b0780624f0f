package docs

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// node is the broker's.
const node = "liqo-broker"

// federation has the objects of the table of an example, in the cluster of the broker: the namespaces of two
// consumers, offloaded to every provider, and a pod in each that asks for 1 CPU and 1Gi of memory.
type federation struct {
	t         *testing.T
	providers map[string]*v1alpha1.ProviderCluster
	labels    map[string]map[string]string
	classes   map[string][]liqov1beta1.StorageType
	claims    []client.Object
	pods      map[string]*corev1.Pod
	policies  []v1alpha1.PlacementPolicy
}

func newFederation(t *testing.T, text string) *federation {
	t.Helper()
	f := &federation{
		t: t, providers: map[string]*v1alpha1.ProviderCluster{}, labels: map[string]map[string]string{}, pods: map[string]*corev1.Pod{},
		classes: map[string][]liqov1beta1.StorageType{},
	}
	for _, namespace := range []string{"shop-consumer1", "lab-consumer2"} {
		pod := f.pod(namespace, "web-0", "", "")
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		}
	}
	var header []string
	for line := range strings.Lines(text) {
		cells := cellsOf(line)
		switch {
		case len(cells) == 0 || strings.HasPrefix(cells[0], "--"):
		case header == nil:
			header = cells
		default:
			require.Len(t, cells, len(header), line)
			f.row(header, cells)
		}
	}
	require.NotEmpty(t, f.providers)
	return f
}

func cellsOf(line string) []string {
	inner, isRow := strings.CutPrefix(strings.TrimSpace(line), "|")
	if !isRow {
		return nil
	}
	cells := strings.Split(strings.TrimSuffix(inner, "|"), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// row reads a line of the table: a provider, or one more slice of one.
func (f *federation) row(header, cells []string) {
	f.t.Helper()
	id := strings.Trim(cells[0], "`")
	pc, known := f.providers[id]
	if !known {
		pc = &v1alpha1.ProviderCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
		pc.Spec.Attributes = map[string]string{}
		pc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ProviderReady, Status: metav1.ConditionTrue}}
		f.providers[id], f.labels[id] = pc, map[string]string{}
	}
	vn := v1alpha1.VirtualNodeStatus{Name: id, Ready: true, Resources: v1alpha1.Resources{Granted: corev1.ResourceList{}}}
	taken := corev1.ResourceList{}
	for i, title := range header[1:] {
		if cell := cells[i+1]; cell != "" {
			f.cell(pc, &vn, taken, title, cell)
		}
	}
	if _, given := vn.Resources.Granted[corev1.ResourceMemory]; !given {
		vn.Resources.Granted[corev1.ResourceMemory] = resource.MustParse("64Gi")
	}
	pc.Status.VirtualNodes = append(pc.Status.VirtualNodes, vn)
	other := f.pod("lab-consumer2", "other-"+vn.Name, id, vn.Name)
	other.Labels["app"] = "other"
	other.Spec.Containers[0].Resources.Requests = taken
}

var (
	attribute = regexp.MustCompile("^`([^`]+)`$")
	label     = regexp.MustCompile("^label `([^`]+)`$")
	days      = regexp.MustCompile(`^Uptime (\d+) d$`)
)

// cell reads one: amounts are what is taken of what is granted, names in code are attributes.
func (f *federation) cell(pc *v1alpha1.ProviderCluster, vn *v1alpha1.VirtualNodeStatus, taken corev1.ResourceList, title, cell string) {
	f.t.Helper()
	amount := func(name corev1.ResourceName, unit string) {
		assigned, granted, ok := strings.Cut(strings.TrimSuffix(cell, " "+unit), "/")
		require.True(f.t, ok, "%s: %s", title, cell)
		vn.Resources.Granted[name], taken[name] = resource.MustParse(granted+unit), resource.MustParse(assigned+unit)
	}
	number := func(unit string) float64 {
		value, err := strconv.ParseFloat(strings.TrimSuffix(cell, " "+unit), 64)
		require.NoError(f.t, err, "%s: %s", title, cell)
		return value
	}
	kpis := &pc.Status.KPIs
	switch title {
	case "Slice":
		vn.Name = strings.Trim(cell, "`")
	case "CPU":
		amount(corev1.ResourceCPU, "")
	case "Memory":
		amount(corev1.ResourceMemory, "Gi")
	case "GPUs":
		amount("nvidia.com/gpu", "")
	case "State":
		f.state(pc, cell)
	case "Pods of web":
		for i := range int(number("")) {
			f.pod("shop-consumer1", fmt.Sprintf("web-at-%s-%d", vn.Name, i), pc.Name, vn.Name)
		}
	case "Storage classes":
		for class := range strings.SplitSeq(cell, ", ") {
			f.classes[pc.Name] = append(f.classes[pc.Name], liqov1beta1.StorageType{StorageClassName: class})
		}
	case "Latency":
		milliseconds := int64(number("ms"))
		kpis.LatencyMilliseconds = &milliseconds
	case "Failed":
		_, err := fmt.Sscanf(cell, "%d of %d", &kpis.Failed, &kpis.Started)
		require.NoError(f.t, err, cell)
		kpis.Started -= kpis.Failed
	default:
		f.named(pc, title, cell, func() string { return strconv.FormatFloat(number("%")/100, 'f', -1, 64) })
	}
}

// named reads a cell whose title names what it is.
func (f *federation) named(pc *v1alpha1.ProviderCluster, title, cell string, share func() string) {
	f.t.Helper()
	if parts := attribute.FindStringSubmatch(title); parts != nil {
		pc.Spec.Attributes[parts[1]] = cell
		return
	}
	if parts := label.FindStringSubmatch(title); parts != nil {
		f.labels[pc.Name][parts[1]] = cell
		return
	}
	parts := days.FindStringSubmatch(title)
	require.NotNil(f.t, parts, "no column is called %s", title)
	window := map[string]*string{
		"1": &pc.Status.KPIs.Uptime.LastDay, "7": &pc.Status.KPIs.Uptime.LastWeek, "30": &pc.Status.KPIs.Uptime.LastMonth,
	}[parts[1]]
	require.NotNil(f.t, window, title)
	*window = share()
}

func (f *federation) state(pc *v1alpha1.ProviderCluster, state string) {
	f.t.Helper()
	no := false
	switch state {
	case "ready":
	case "disabled":
		pc.Spec.Enabled = &no
	case "cordoned":
		pc.Spec.Cordoned = true
	case "not ready":
		pc.Status.Conditions[0].Status = metav1.ConditionFalse
	default:
		require.Failf(f.t, "no state", "%s", state)
	}
}

// pod makes one of web that asks for nothing: at a VirtualNode of a provider, or waiting.
func (f *federation) pod(namespace, name, provider, virtualNode string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + name),
			Labels: map[string]string{"app": "web"},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}}},
	}
	if virtualNode != "" {
		pod.Labels[v1alpha1.ProviderLabel], pod.Labels[v1alpha1.VirtualNodeLabel] = provider, virtualNode
	}
	f.pods[namespace+"/"+name] = pod
	return pod
}

// add reads objects of the example: policies, and pods, which take the place of those that are there.
func (f *federation) add(text string) {
	f.t.Helper()
	for object := range strings.SplitSeq(text, "---\n") {
		var kind metav1.TypeMeta
		require.NoError(f.t, yaml.Unmarshal([]byte(object), &kind))
		switch kind.Kind {
		case "PlacementPolicy":
			var policy v1alpha1.PlacementPolicy
			require.NoError(f.t, yaml.UnmarshalStrict([]byte(object), &policy))
			require.Equal(f.t, v1alpha1.GroupVersion().String(), policy.APIVersion)
			f.policies = append(f.policies, policy)
		case "Pod":
			var pod corev1.Pod
			require.NoError(f.t, yaml.UnmarshalStrict([]byte(object), &pod))
			placed := f.pod(pod.Namespace, pod.Name, "", "")
			placed.Annotations, placed.Spec = pod.Annotations, pod.Spec
			placed.Spec.NodeName = node
			for i := range placed.Spec.Containers {
				// The API server does that.
				r := &placed.Spec.Containers[i].Resources
				maps.Copy(r.Requests, r.Limits)
			}
		case "ProviderCluster":
			var pc v1alpha1.ProviderCluster
			require.NoError(f.t, yaml.UnmarshalStrict([]byte(object), &pc))
			require.Contains(f.t, f.providers, pc.Name)
			f.providers[pc.Name].Spec.Prices = pc.Spec.Prices
		case "PersistentVolumeClaim":
			var claim corev1.PersistentVolumeClaim
			require.NoError(f.t, yaml.UnmarshalStrict([]byte(object), &claim))
			f.claim(&claim)
		default:
			require.Failf(f.t, "another kind", "%s", kind.Kind)
		}
	}
}

// claim adds a claim with its volume, which is at no provider yet.
func (f *federation) claim(claim *corev1.PersistentVolumeClaim) {
	claim.UID, claim.Spec.VolumeName = types.UID(claim.Name), "pvc-"+claim.Name
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName, Labels: map[string]string{v1alpha1.VolumeLabel: "true"}},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{UID: claim.UID}},
	}
	f.claims = append(f.claims, claim, volume)
}

// client is one of the broker's cluster.
func (f *federation) client() client.Client {
	f.t.Helper()
	scheme, err := apischeme.New()
	require.NoError(f.t, err)
	var objects []client.Object
	desired, mapping := map[string]string{}, map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	for name, consumer := range map[string]string{"shop-consumer1": "consumer1", "lab-consumer2": "consumer2"} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{consts.RemoteClusterID: consumer},
			Annotations: map[string]string{consts.RemoteNamespaceManagedByAnnotationKey: "liqo-tenant/" + consumer},
		}})
		desired[name] = name
		mapping[name] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: name, Phase: offloadingv1beta1.MappingAccepted}
	}
	for id, pc := range f.providers {
		tenant := metav1.ObjectMeta{Namespace: "liqo-tenant-" + id, Name: id, Labels: map[string]string{consts.RemoteClusterID: id}}
		objects = append(objects, pc, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: tenant.Namespace, Labels: map[string]string{consts.RemoteClusterID: id, consts.TenantNamespaceLabel: "true"},
		}}, &offloadingv1beta1.NamespaceMap{
			ObjectMeta: tenant, Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: mapping},
		}, &offloadingv1beta1.VirtualNode{
			ObjectMeta: tenant, Spec: offloadingv1beta1.VirtualNodeSpec{
				ClusterID: liqov1beta1.ClusterID(id), Labels: f.labels[id],
				StorageClasses: f.classes[id],
			},
		})
	}
	objects = append(objects, f.claims...)
	for i := range f.policies {
		f.policies[i].CreationTimestamp = metav1.NewTime(time.Unix(0, 0))
		objects = append(objects, &f.policies[i])
	}
	for _, pod := range f.pods {
		objects = append(objects, pod)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		Build()
}
