package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	coredefaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	shadowpodctrl "github.com/liqotech/liqo/pkg/liqo-controller-manager/offloading/shadowpod-controller"
	"github.com/liqotech/liqo/pkg/virtualKubelet/forge"
	podwebhook "github.com/liqotech/liqo/pkg/webhooks/pod"
)

// The API server rejects a policy whose expressions do not compile or could cost too much.
func TestPoliciesAreValid(t *testing.T) {
	count := 0
	for _, o := range rendered(t, All) {
		if o.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		count++
		policy := find[admissionregistrationv1.ValidatingAdmissionPolicy](t, []*unstructured.Unstructured{o}, o.GetKind(), o.GetName())
		legacyscheme.Scheme.Default(policy)
		var internal admissionregistration.ValidatingAdmissionPolicy
		require.NoError(t, legacyscheme.Scheme.Convert(policy, &internal, nil))
		require.Empty(t, validation.ValidateValidatingAdmissionPolicy(&internal), o.GetName())
	}
	require.Positive(t, count)
}

// at returns a consumer's pod as its API server stores it: with defaults, with the changes of admission, and bound.
func at(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "1", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: "broker", Priority: ptr.To[int32](0), PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority),
			ServiceAccountName: "default", DeprecatedServiceAccount: "default",
			Tolerations: []corev1.Toleration{
				{
					Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
					TolerationSeconds: ptr.To[int64](300),
				},
				{Key: "virtual-node.liqo.io/not-allowed", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
			},
			Containers: []corev1.Container{{
				Name: "main", Image: "nginx", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/"}}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(true),
					Capabilities: &corev1.Capabilities{
						Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"},
					},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
			InitContainers: []corev1.Container{{Name: "init", Image: "busybox"}},
			Volumes: []corev1.Volume{
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
						{ConfigMap: &corev1.ConfigMapProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
						}},
					},
				}}},
			},
		},
	}
	coredefaults.SetObjectDefaults_Pod(pod)
	for _, c := range change {
		c(pod)
	}
	return pod
}

// forwarded returns the ShadowPod that Liqo's virtual kubelet creates for a pod, with everything that a VirtualNode may
// add.
func forwarded(pod *corev1.Pod) *offloadingv1beta1.ShadowPod {
	forge.Init("c1", "broker", "broker", "10.0.0.1")
	opts := forge.NewForgingOpts(&offloadingv1beta1.OffloadingPatch{
		NodeSelector: map[string]string{"region": "eu"},
		Tolerations:  []corev1.Toleration{{Key: "edge", Operator: corev1.TolerationOpExists}},
		Affinity: &offloadingv1beta1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "arch", Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
				}},
				{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "arch", Operator: corev1.NodeSelectorOpIn, Values: []string{"arm64"}},
				}},
			}},
		}},
	})
	shadow := forge.RemoteShadowPod(pod, nil, offloaded, &opts,
		forge.APIServerSupportMutator(forge.APIServerSupportTokenAPI, pod.Annotations, "default",
			func(string) string { return "token" }, func() string { return "" }, "api.consumer", "6443"),
		forge.ServiceAccountMutator(forge.APIServerSupportTokenAPI, pod.Annotations),
		forge.NodeSelectorMutator(opts.NodeSelector), forge.TolerationsMutator(opts.Tolerations), forge.AffinityMutator(opts.Affinity))
	shadow.TypeMeta = metav1.TypeMeta{APIVersion: offloadingv1beta1.SchemeGroupVersion.String(), Kind: "ShadowPod"}
	return shadow
}

// made returns the pod that Liqo's controller creates from a ShadowPod. If the namespace is offloaded with that
// strategy, Liqo's webhook has changed the pod.
func made(t *testing.T, shadow *offloadingv1beta1.ShadowPod, strategy offloadingv1beta1.PodOffloadingStrategyType) *corev1.Pod {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, offloadingv1beta1.AddToScheme(scheme))
	// As the broker writes it (pkg/offloading).
	offloading := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Name: "offloading", Namespace: shadow.Namespace},
		Spec: offloadingv1beta1.NamespaceOffloadingSpec{
			PodOffloadingStrategy: strategy,
			ClusterSelector: corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: "liqo.io/remote-cluster-id", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"c1"},
				}},
			}}},
		},
	}
	c := clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(shadow.DeepCopy(), offloading).Build()
	controller := &shadowpodctrl.Reconciler{Client: c, Scheme: scheme, Recorder: record.NewFakeRecorder(10)}
	key := client.ObjectKeyFromObject(shadow)
	_, err := controller.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(t, err)
	pod := &corev1.Pod{}
	require.NoError(t, c.Get(t.Context(), key, pod))
	if strategy != "" {
		raw, err := json.Marshal(pod)
		require.NoError(t, err)
		answer := podwebhook.New(c, "liqo").Handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Namespace: pod.Namespace, Object: runtime.RawExtension{Raw: raw},
		}})
		require.True(t, answer.Allowed, answer.Result)
		patch, err := json.Marshal(answer.Patches)
		require.NoError(t, err)
		require.NoError(t, c.Patch(t.Context(), pod, client.RawPatch(types.JSONPatchType, patch)))
	}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return pod
}

// raw returns an object as policies see it in the API server.
func raw(t *testing.T, o runtime.Object) *unstructured.Unstructured {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: fields}
}

var (
	pods       = corev1.SchemeGroupVersion.WithResource("pods")
	shadowPods = offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods")
)

const remote = offloadingv1beta1.RemotePodOffloadingStrategyType

func TestPodsOfConsumersRunOnVirtualNodesOnly(t *testing.T) {
	const (
		early    = "the namespace of this ShadowPod is not offloaded yet"
		node     = "a pod of a consumer may name no node but the broker's"
		confined = "has to be confined to virtual nodes"
	)
	in := func(namespace string, change ...func(*corev1.PodSpec)) *offloadingv1beta1.ShadowPod {
		shadow := forwarded(at())
		shadow.Namespace = namespace
		for _, c := range change {
			c(&shadow.Spec.Pod)
		}
		return shadow
	}
	bound := func(name string) func(*corev1.PodSpec) { return func(s *corev1.PodSpec) { s.NodeName = name } }
	alternatives := func(terms ...corev1.NodeSelectorTerm) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
			}}
		}
	}
	term := func(operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "liqo.io/type", Operator: operator, Values: values}},
		}
	}
	virtual := term(corev1.NodeSelectorOpIn, "virtual-node")
	attacks := map[string]struct {
		pod     *corev1.Pod
		because string
	}{
		"before the namespace is offloaded": {made(t, in(arrived), ""), early},
		"with what the webhook would add":   {made(t, in(arrived, alternatives(virtual)), ""), early},
		"the webhook did not see it":        {made(t, in(offloaded), ""), confined},
		"on a node of its choice":           {made(t, in(offloaded, bound("worker")), remote), node},
		"on ordinary nodes, too":            {made(t, in(offloaded), offloadingv1beta1.LocalAndRemotePodOffloadingStrategyType), confined},
		"by an alternative of its own": {
			made(t, in(offloaded, alternatives(virtual, term(corev1.NodeSelectorOpNotIn, "virtual-node"))), ""), confined,
		},
		"by another value":  {made(t, in(offloaded, alternatives(term(corev1.NodeSelectorOpIn, "virtual-node", "x"))), ""), confined},
		"by no alternative": {made(t, in(offloaded, alternatives([]corev1.NodeSelectorTerm{}...)), ""), confined},
	}
	honest := map[string]*corev1.Pod{
		"as Liqo makes it":                        made(t, in(offloaded), remote),
		"on the broker's node":                    made(t, in(offloaded, bound("liqo-broker")), remote),
		"which says itself what the webhook does": made(t, in(offloaded, alternatives(term(corev1.NodeSelectorOpExists), virtual)), remote),
		"of Liqo's runtime class": made(t, in(offloaded, func(s *corev1.PodSpec) {
			// The admission plugin RuntimeClass adds the fields of the class.
			s.RuntimeClassName, s.NodeSelector = ptr.To("liqo"), map[string]string{"liqo.io/type": "virtual-node"}
		}), remote),
		"of this cluster": {
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: elsewhere},
			Spec: corev1.PodSpec{NodeName: "worker"},
		},
	}
	plugin, without, local := guard(t), unguarded(t, "liqo-broker-pods"), guardWith(t, "localPods", true)
	for name, tc := range attacks {
		t.Run(name, func(t *testing.T) {
			pod := raw(t, tc.pod)
			requireRefusal(t, write(t, without, liqo, pods, "", nil, pod), "")
			requireRefusal(t, write(t, local, liqo, pods, "", nil, pod), "")
			requireRefusal(t, write(t, plugin, liqo, pods, "", nil, pod), tc.because)
			requireRefusal(t, write(t, plugin, liqo, pods, "", pod, pod), "")
		})
	}
	for name, pod := range honest {
		t.Run(name, func(t *testing.T) { requireRefusal(t, write(t, plugin, liqo, pods, "", nil, raw(t, pod)), "") })
	}
}

func TestShadowPodsDecideNothingAboutTheirNodes(t *testing.T) {
	plugin, without, privileged := guard(t), unguarded(t, "liqo-broker-shadowpods"), guardWith(t, "podSecurity", "privileged")
	honest := forwarded(at())
	requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, raw(t, honest)), "")
	for name, tc := range map[string]struct {
		change  func(*corev1.PodSpec)
		because string
		// level is whether the value guard.podSecurity allows it.
		level bool
	}{
		"the node": {func(s *corev1.PodSpec) { s.NodeName = "worker" }, "may not have nodeName", false},
		"the priority": {
			func(s *corev1.PodSpec) { s.PriorityClassName = "system-node-critical" }, "may not have priorityClassName", false,
		},
		"its number":      {func(s *corev1.PodSpec) { s.Priority = ptr.To[int32](1000) }, "may not have priority", false},
		"the scheduler":   {func(s *corev1.PodSpec) { s.SchedulerName = "mine" }, "may not have schedulerName", false},
		"the usual one":   {func(s *corev1.PodSpec) { s.SchedulerName, s.Priority = "default-scheduler", ptr.To[int32](0) }, "", false},
		"the host's pids": {func(s *corev1.PodSpec) { s.HostPID = true }, "may not have hostPID", true},
		"a directory of the host": {func(s *corev1.PodSpec) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		}, "may not have hostPath", true},
		"privileges of an init container": {func(s *corev1.PodSpec) {
			s.InitContainers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}, "may not have privileged", true},
		"capabilities": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
		}, "may not have capabilities", true},
	} {
		t.Run(name, func(t *testing.T) {
			changed := honest.DeepCopy()
			tc.change(&changed.Spec.Pod)
			shadow := raw(t, changed)
			requireRefusal(t, write(t, without, theKubelet, shadowPods, "", nil, shadow), "")
			requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, shadow), tc.because)
			requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", raw(t, honest), shadow), tc.because)
			if tc.level {
				tc.because = ""
			}
			requireRefusal(t, write(t, privileged, theKubelet, shadowPods, "", nil, shadow), tc.because)
			released := shadow.DeepCopy()
			released.SetFinalizers(nil)
			shadow.SetFinalizers([]string{"example.org/x"})
			requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", shadow, released), "")
		})
	}
}

// A policy must not keep the API server busy with long lists that it iterates over.
func TestWhatTakesLongToGoThroughIsRefused(t *testing.T) {
	plugin := unguarded(t, "liqo-broker-labels", "liqo-broker-metadata") // These bound annotations, too.
	const tooLarge = "a ShadowPod may have 100 containers"
	for name, tc := range map[string]struct {
		count   int
		add     func(*offloadingv1beta1.ShadowPod, int)
		because string
	}{
		"many containers": {98, func(s *offloadingv1beta1.ShadowPod, i int) {
			s.Spec.Pod.Containers = append(s.Spec.Pod.Containers,
				corev1.Container{Name: fmt.Sprint(i), SecurityContext: &corev1.SecurityContext{}})
		}, ""},
		"too many": {20_000, func(s *offloadingv1beta1.ShadowPod, i int) {
			s.Spec.Pod.Containers = append(s.Spec.Pod.Containers, corev1.Container{Name: fmt.Sprint(i)})
		}, tooLarge},
		"many ports": {999, func(s *offloadingv1beta1.ShadowPod, i int) {
			s.Spec.Pod.Containers[0].Ports = append(s.Spec.Pod.Containers[0].Ports, corev1.ContainerPort{ContainerPort: int32(i + 1)})
		}, tooLarge},
		"many capabilities": {20_000, func(s *offloadingv1beta1.ShadowPod, _ int) {
			c := s.Spec.Pod.Containers[0].SecurityContext.Capabilities
			c.Add = append(c.Add, "CHOWN")
		}, tooLarge},
		"many volumes": {498, func(s *offloadingv1beta1.ShadowPod, i int) {
			s.Spec.Pod.Volumes = append(s.Spec.Pod.Volumes, corev1.Volume{Name: fmt.Sprint(i)})
		}, ""},
		"many sysctls": {20_000, func(s *offloadingv1beta1.ShadowPod, i int) {
			s.Spec.Pod.SecurityContext.Sysctls = append(s.Spec.Pod.SecurityContext.Sysctls, corev1.Sysctl{Name: fmt.Sprint(i)})
		}, tooLarge},
		"many terms": {200, func(s *offloadingv1beta1.ShadowPod, _ int) {
			repelled(func(a *corev1.PodAntiAffinity) {
				a.RequiredDuringSchedulingIgnoredDuringExecution = append(a.RequiredDuringSchedulingIgnoredDuringExecution,
					corev1.PodAffinityTerm{Namespaces: []string{offloaded}})
			})(&s.Spec.Pod)
		}, ""},
		"too many terms": {20_000, func(s *offloadingv1beta1.ShadowPod, _ int) {
			repelled(func(a *corev1.PodAntiAffinity) {
				a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
					corev1.WeightedPodAffinityTerm{})
			})(&s.Spec.Pod)
		}, tooLarge},
		"many namespaces of a term": {20_000, func(s *offloadingv1beta1.ShadowPod, _ int) {
			repelled(func(a *corev1.PodAntiAffinity) {
				if len(a.RequiredDuringSchedulingIgnoredDuringExecution) == 0 {
					a.RequiredDuringSchedulingIgnoredDuringExecution = make([]corev1.PodAffinityTerm, 1)
				}
				term := &a.RequiredDuringSchedulingIgnoredDuringExecution[0]
				term.Namespaces = append(term.Namespaces, offloaded)
			})(&s.Spec.Pod)
		}, tooLarge},
		"many variables": {4000, func(s *offloadingv1beta1.ShadowPod, i int) {
			s.Spec.Pod.Containers[0].Env = append(s.Spec.Pod.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint(i)})
		}, ""},
		"too many variables": {20_000, func(s *offloadingv1beta1.ShadowPod, i int) {
			s.Spec.Pod.Containers[0].Env = append(s.Spec.Pod.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprint(i)})
		}, tooLarge},
		"many sources of a volume": {20_000, func(s *offloadingv1beta1.ShadowPod, _ int) {
			v := &s.Spec.Pod.Volumes[1].Projected.Sources
			*v = append(*v, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}})
		}, tooLarge},
		"many files of a source": {1900, func(s *offloadingv1beta1.ShadowPod, i int) { projectFile(s, i) }, ""},
		"too many files":         {20_000, func(s *offloadingv1beta1.ShadowPod, i int) { projectFile(s, i) }, tooLarge},
		"many annotations": {20_000, func(s *offloadingv1beta1.ShadowPod, i int) {
			s.Annotations = with(s.Annotations, fmt.Sprint(i))
		}, tooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			shadow := forwarded(at())
			for i := range tc.count {
				tc.add(shadow, i)
			}
			object, began := raw(t, shadow), time.Now()
			requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, object), tc.because)
			require.Less(t, time.Since(began), 5*time.Second)
		})
	}
}

// projectFile adds a file to a source of a projected volume.
func projectFile(s *offloadingv1beta1.ShadowPod, i int) {
	source := &s.Spec.Pod.Volumes[1].Projected.Sources[0]
	if source.DownwardAPI == nil {
		source.DownwardAPI = &corev1.DownwardAPIProjection{}
	}
	source.DownwardAPI.Items = append(source.DownwardAPI.Items, corev1.DownwardAPIVolumeFile{
		Path: fmt.Sprint(i), ResourceFieldRef: &corev1.ResourceFieldSelector{Divisor: resource.MustParse("1Mi")},
	})
}

// repelled returns a change of a pod's anti-affinity.
func repelled(change func(a *corev1.PodAntiAffinity)) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		if s.Affinity == nil {
			s.Affinity = &corev1.Affinity{}
		}
		if s.Affinity.PodAntiAffinity == nil {
			s.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		change(s.Affinity.PodAntiAffinity)
	}
}

func TestShadowPodsKeepNoPodsOfOthersAway(t *testing.T) {
	plugin, without := guard(t), unguarded(t, "liqo-broker-shadowpods")
	const refused = "may have affinity and anti-affinity only to pods of its own namespace"
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	everyone, own := &metav1.LabelSelector{}, corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: labels}
	for name, tc := range map[string]struct {
		change  func(term *corev1.PodAffinityTerm)
		because string
	}{
		"of its own namespace":        {func(*corev1.PodAffinityTerm) {}, ""},
		"by its name":                 {func(a *corev1.PodAffinityTerm) { a.Namespaces = []string{offloaded} }, ""},
		"of all namespaces":           {func(a *corev1.PodAffinityTerm) { a.NamespaceSelector = everyone }, refused},
		"of those with a label":       {func(a *corev1.PodAffinityTerm) { a.NamespaceSelector = labels }, refused},
		"of another":                  {func(a *corev1.PodAffinityTerm) { a.Namespaces = []string{"shop-c2"} }, refused},
		"of another beside its own":   {func(a *corev1.PodAffinityTerm) { a.Namespaces = []string{offloaded, "shop-c2"} }, refused},
		"by the name in the consumer": {func(a *corev1.PodAffinityTerm) { a.Namespaces = []string{"shop"} }, refused},
	} {
		term := own
		tc.change(&term)
		weighted := []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: own}, {Weight: 100, PodAffinityTerm: term}}
		for where, affinity := range map[string]*corev1.Affinity{
			"required away": {PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{own, term},
			}},
			"preferred away": {PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted}},
			"required beside": {
				PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{own, term}},
			},
			"preferred": {PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted}},
		} {
			t.Run(where+" "+name, func(t *testing.T) {
				changed := forwarded(at())
				changed.Spec.Pod.Affinity = affinity
				shadow, released := raw(t, changed), raw(t, changed)
				requireRefusal(t, write(t, without, theKubelet, shadowPods, "", nil, shadow), "")
				requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, shadow), tc.because)
				released.SetLabels(map[string]string{"example.org/x": ""})
				requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", shadow, released), "")
			})
		}
	}
	for _, preset := range []string{"propagate", "soft", "hard"} {
		pod := at(func(p *corev1.Pod) {
			p.Annotations = map[string]string{"liqo.io/anti-affinity-preset": preset}
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{own},
			}}
		})
		shadow := forwarded(pod)
		require.NotNil(t, shadow.Spec.Pod.Affinity.PodAntiAffinity, preset)
		requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, raw(t, shadow)), "")
	}
}

// A ShadowPod requests resources for its single containers, not for the pod as a whole.
func TestShadowPodsRequestByTheirContainersOnly(t *testing.T) {
	plugin, without := guard(t), unguarded(t, "liqo-broker-shadowpods")
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("400")}
	for name, resources := range map[string]*corev1.ResourceRequirements{"requests": {Requests: amounts}, "limits": {Limits: amounts}} {
		pod := at(func(p *corev1.Pod) { p.Spec.Resources = resources })
		shadow := forwarded(pod)
		requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, raw(t, shadow)), "")
		require.Nil(t, shadow.Spec.Pod.Resources, "Liqo's virtual kubelet forwards none")
		shadow.Spec.Pod.Resources = resources
		attack := raw(t, shadow)
		requireRefusal(t, write(t, without, theKubelet, shadowPods, "", nil, attack), "")
		requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, attack), "a ShadowPod may not have spec.pod.resources")
		requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", raw(t, forwarded(at())), attack),
			"a ShadowPod may not have spec.pod.resources")
		released := attack.DeepCopy()
		released.SetLabels(map[string]string{"example.org/" + name: ""})
		requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", attack, released), "")
	}
}

// with returns the map with the key added.
func with(m map[string]string, key string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = ""
	return m
}

// The cases are Kubernetes' own tests of Pod Security Admission.
func TestShadowPodsAreBoundByTheLevelBaseline(t *testing.T) {
	plugin := guard(t)
	fixtures := filepath.Join(moduleDir(t, "k8s.io/pod-security-admission"), "test", "testdata", "baseline", "v1."+minor)
	for verdict, least := range map[string]int{"pass": 10, "fail": 30} {
		files, err := filepath.Glob(filepath.Join(fixtures, verdict, "*.yaml"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(files), least)
		for _, file := range files {
			t.Run(verdict+"/"+strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
				text, err := os.ReadFile(file)
				require.NoError(t, err)
				var pod corev1.Pod
				require.NoError(t, yaml.Unmarshal(text, &pod))
				because := ""
				if verdict == "fail" {
					because = "beyond the level baseline of Pod Security"
				}
				shadow := raw(t, &offloadingv1beta1.ShadowPod{
					TypeMeta:   metav1.TypeMeta{APIVersion: offloadingv1beta1.SchemeGroupVersion.String(), Kind: "ShadowPod"},
					ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: offloaded, Annotations: pod.Annotations},
					Spec:       offloadingv1beta1.ShadowPodSpec{Pod: pod.Spec},
				})
				requireRefusal(t, write(t, plugin, theKubelet, shadowPods, "", nil, shadow), because)
			})
		}
	}
}
