package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// TestInstall installs Liqo, by liqoctl, in three clusters that have nothing but Kubernetes, and then follows README.md.
func TestInstall(t *testing.T) {
	if err := sandbox.ContainersPossible(); err != nil {
		t.Skip(err)
	}
	t.Run("with Helm 3", func(t *testing.T) { testInstall(t, "helm3") })
	t.Run("with Helm 4", func(t *testing.T) { testInstall(t, "helm4") })
}

func testInstall(t *testing.T, helm string) {
	s, err := sandbox.Up(t.Context(), sandbox.Options{
		Name: "install-" + helm, Consumers: 1, Providers: 1, Containers: true, Bare: true, Progress: t.Logf,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the logs are in %s", s.Dir())
			require.NoError(t, s.Stop())
			return
		}
		require.NoError(t, s.Down())
	})
	r := newReader(t, s, helm)
	chart := r.installLiqo(t)

	steps := blocks(t, "../../README.md")
	require.Len(t, steps, 2)
	printed := r.run(t, steps[0], change{"registry.example.com", s.Registry()}, withoutNetworks, configureKubelets)
	digest := regexp.MustCompile(`sha256:[0-9a-f]{64}\n`).FindString(printed) // make image prints it.
	require.NotEmpty(t, digest)
	r.run(t, steps[1], change{"liqo --repo https://helm.liqo.io --version v1.2.0", chart}, withoutNetworks, withoutAddresses,
		change{"--image=nginx", "--image=" + sandbox.ImageWeb})
	eventually(t, r.serves)

	upkeep := blocks(t, "../../docs/install.md")
	require.Len(t, upkeep, 2)
	before := r.containers(t)
	require.Len(t, before, 3)
	r.run(t, "export KUBECONFIG=~/broker.yaml")
	r.run(t, upkeep[0], change{"sha256:<digest>", strings.TrimSpace(digest)})
	eventually(t, func(ctx context.Context) error { return r.rolledOut(ctx, strings.TrimSpace(digest)) })
	require.NoError(t, r.serves(t.Context()))
	require.Equal(t, before, r.containers(t), "an upgrade starts no container again")

	consumer := s.Cluster(sandbox.Consumer(1))
	require.NoError(t, consumer.Kube.AppsV1().Deployments("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	eventually(t, func(context.Context) error {
		if left := r.containers(t); len(left) > 0 {
			return fmt.Errorf("%d pods are left at the provider", len(left))
		}
		return nil
	})
	r.run(t, upkeep[1])
	eventually(t, r.removed)
}

// withoutAddresses has no remote IPAM, which needs networks: pods to whose address there is no way would not be Ready.
var withoutAddresses = change{
	`"virtualKubelet.extra.args={--direct-traffic=true,--remote-ipam=server=${ADDRESS:?has none yet}}"`,
	`"virtualKubelet.extra.args={--direct-traffic=false}" && echo "The remote IPAM is at ${ADDRESS:?has none yet}"`,
}

// containers returns the containers of the consumer's pods at the provider.
func (r *reader) containers(t *testing.T) []string {
	t.Helper()
	pods, err := r.Cluster(sandbox.Provider(1)).Kube.CoreV1().Pods("shop-consumer-broker").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var ids []string
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			ids = append(ids, c.ContainerID)
		}
	}
	slices.Sort(ids)
	return ids
}

// rolledOut reports whether all pods of the broker's namespace have an image, and are Ready.
func (r *reader) rolledOut(ctx context.Context, digest string) error {
	broker := r.Cluster(sandbox.Broker)
	deployments, err := broker.Kube.AppsV1().Deployments("liqo-broker").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(deployments.Items) != 2 {
		return fmt.Errorf("%d Deployments in place of 2", len(deployments.Items))
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if image := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, "@"+digest) {
			return fmt.Errorf("%s has the image %s", d.Name, image)
		}
		if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != 2 || d.Status.AvailableReplicas != 2 ||
			d.Status.Replicas != 2 {
			return fmt.Errorf("%s: %+v", d.Name, d.Status)
		}
	}
	return nil
}

// removed reports whether only those objects are left that docs/install.md names: the CRDs, the guard, and the namespace.
func (r *reader) removed(ctx context.Context) error {
	broker := r.Cluster(sandbox.Broker)
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=liqo-broker-vk"}
	kube := broker.Kube
	pods, err := kube.CoreV1().Pods("liqo-broker").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	roles, err := kube.RbacV1().ClusterRoles().List(ctx, ours)
	if err != nil {
		return err
	}
	bindings, err := kube.RbacV1().ClusterRoleBindings().List(ctx, ours)
	if err != nil {
		return err
	}
	policies, err := kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(ctx, ours)
	if err != nil {
		return err
	}
	if n := len(pods.Items) + len(roles.Items) + len(bindings.Items); n > 0 {
		return fmt.Errorf("%d pods, %d ClusterRoles and %d bindings are left", len(pods.Items), len(roles.Items), len(bindings.Items))
	}
	if len(policies.Items) == 0 {
		return errors.New("the guard is gone")
	}
	_, err = kube.CoreV1().Nodes().Get(ctx, "liqo-broker", metav1.GetOptions{})
	if err == nil {
		return errors.New("the broker's Node is there")
	}
	return client.IgnoreNotFound(err)
}

// withoutNetworks peers without gateways: nodes of the sandbox have no network between the pods of clusters.
var withoutNetworks = change{"liqoctl peer ", "liqoctl peer --networking-disabled "}

// configureKubelets runs the command that the chart printed.
var configureKubelets = change{
	"# 4. Configure the virtual kubelets of this cluster: run the kubectl apply command that step 3 printed.",
	`helm get notes liqo-broker -n liqo-broker | sed -n '/kubectl apply/,/^END/p' | sed 's/^     //' > apply.sh && bash apply.sh`,
}

// installLiqo installs Liqo's own chart in all clusters, and returns its directory.
func (r *reader) installLiqo(t *testing.T) string {
	t.Helper()
	source, err := sandbox.LiqoSource(t.Context())
	require.NoError(t, err)
	chart := filepath.Join(source, "deployments", "liqo")
	for _, c := range r.Clusters {
		id := c.Name
		if c.Role == sandbox.RoleConsumer {
			id = "consumer" // As in README.md.
		}
		r.run(t, fmt.Sprintf(`liqoctl install --kubeconfig %s --cluster-id %s --api-server-url %s --pod-cidr 10.244.0.0/16 `+
			`--service-cidr %s --version %s --local-chart-path %s --disable-telemetry --disable-api-server-sanity-check `+
			`--timeout 2m --set networking.enabled=false,metricAgent.enabled=false,proxy.enabled=false`,
			c.Kubeconfig(), id, c.APIServer(), c.ServiceCIDR(), sandbox.LiqoVersion, chart))
	}
	return chart
}

// serves reports whether the Deployment of README.md runs at the provider, and the consumer and the broker know it.
func (r *reader) serves(ctx context.Context) error {
	consumer, provider := r.Cluster(sandbox.Consumer(1)), r.Cluster(sandbox.Provider(1))
	web, err := consumer.Kube.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if web.Status.AvailableReplicas != 3 {
		return fmt.Errorf("%d of 3 replicas are available", web.Status.AvailableReplicas)
	}
	here, err := consumer.Kube.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for i := range here.Items {
		if node := here.Items[i].Spec.NodeName; node != "broker" {
			return fmt.Errorf("pod %s is on node %q", here.Items[i].Name, node)
		}
		names[here.Items[i].Name] = true
	}
	there, err := provider.Kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	running := 0
	for i := range there.Items {
		if p := &there.Items[i]; names[p.Name] && p.Spec.NodeName == provider.MachineNode() && p.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	if running != 3 {
		return fmt.Errorf("%d of 3 pods run in containers of the provider", running)
	}
	return nil
}
