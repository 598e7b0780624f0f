package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	brokeringv1alpha1 "github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/orchestrator"
	"github.com/capacitorset/liqo-broker-vk/test/dashboard"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// catalogued is a federation with the catalog and its clients over HTTPS. The tests compare the catalog's answers with
// the API of the clusters.
type catalogued struct {
	*chain
	address string
	tape    *tape

	stranger, operator *caller
	// administrator is the token of a user with all rights.
	administrator string
	// first and second authenticate with consumers' certificates, firstByToken with a token of a ServiceAccount of the
	// first consumer.
	first, second, firstByToken *caller
	// namespaces of the consumers, each with pods.
	mine, theirs string
}

// operatorRole has all rights that an operator needs for the catalog.
var operatorRole = &rbacv1.ClusterRole{
	ObjectMeta: metav1.ObjectMeta{Name: "catalog-operator"},
	Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"brokering.liqo.io"}, Resources: []string{"providerclusters"}, Verbs: []string{"get", "list", "patch"}},
		{APIGroups: []string{"brokering.liqo.io"}, Resources: []string{"placementpolicies"}, Verbs: []string{"get", "list"}},
	},
}

// askers creates the callers of the catalog, and their pods, which exist until the test ends.
func (c *catalogued) askers(t *testing.T) {
	t.Helper()
	addresses, err := c.CatalogAddresses(t.Context())
	require.NoError(t, err)
	require.Len(t, addresses, 2)
	c.address = addresses[0]

	require.NoError(t, c.broker.Client.Create(t.Context(), operatorRole.DeepCopy()))
	account := func(name, clusterRole string) string {
		token, err := c.broker.Account(t.Context(), "default", name, clusterRole)
		require.NoError(t, err)
		return token
	}
	c.stranger = c.newCaller(t, "stranger", "", nil)
	c.operator = c.newCaller(t, "operator", account(operatorRole.Name, operatorRole.Name), nil)
	c.administrator = account("administrator", "cluster-admin")
	person, err := c.broker.AccountOfConsumer(t.Context(), c.consumers[0].Name, "person")
	require.NoError(t, err)
	c.firstByToken = c.newCaller(t, "consumer1 by token", person, nil)
	c.first = c.newCaller(t, "consumer1", "", identityOf(t, c.consumers[0], authv1beta1.ControlPlaneIdentityType))
	c.second = c.newCaller(t, "consumer2", "", identityOf(t, c.consumers[1], authv1beta1.ControlPlaneIdentityType))

	c.mine, c.theirs = "mine", "theirs"
	for i, namespace := range []string{c.mine, c.theirs} {
		require.NoError(t, c.consumers[i].Offload(t.Context(), namespace))
		t.Cleanup(func() { c.withdraw(t, c.consumers[i], namespace) })
		for n := range 4 {
			c.pod(t, c.consumers[i], namespace, fmt.Sprintf("%s-%d", namespace, n), "true")
		}
		eventually(t, patient, func(ctx context.Context) error { return allRunning(ctx, c.consumers[i], namespace, 4) })
	}
}

// dashboard runs the scenarios of test/dashboard against the real catalog.
func (c *catalogued) dashboard(t *testing.T) {
	const component = sandbox.Broker + "/" + sandbox.CatalogComponent
	screenshots := os.Getenv("SCREENSHOTS")
	if screenshots == "" {
		screenshots = filepath.Join(os.TempDir(), "liqo-broker-vk-screenshots")
	}
	screenshots = filepath.Join(screenshots, "sandbox")
	t.Logf("screenshots are in %s", screenshots)
	dashboard.Scenarios(t, dashboard.Target{
		URL: "https://" + c.CatalogAddress() + "/", Client: c.stranger.client,
		Consumer: c.consumers[0].Name, ConsumerToken: c.firstByToken.token, OperatorToken: c.administrator,
		Provider: "provider2", Namespace: c.consumers[0].RemoteNamespace(c.mine), Pod: "mine-0",
		Stop: func() {
			require.NoError(t, c.Kill(component))
			c.revive(t, component)
		},
		Start: func() {
			ctx, cancel := context.WithTimeout(context.Background(), patient)
			defer cancel()
			require.NoError(t, c.Restart(ctx, component))
			_, err := c.CatalogAddresses(ctx)
			require.NoError(t, err)
		},
		Screenshots: screenshots, WithoutLooks: true,
	})
}

// providerOf reads a provider from the API.
func (c *catalogued) providerOf(t *testing.T, id string) *brokeringv1alpha1.ProviderCluster {
	t.Helper()
	var provider brokeringv1alpha1.ProviderCluster
	require.NoError(t, c.broker.Client.Get(t.Context(), client.ObjectKey{Name: id}, &provider))
	return &provider
}

// clusters: curl http://…/api/clusters.
func (c *catalogued) clusters(t *testing.T) {
	got := c.operator.must(t, http.StatusOK, http.MethodGet, "/api/clusters", "")
	assert.Equal(t, "application/json", got.header.Get("Content-Type"))
	var items []map[string]any
	require.NoError(t, json.Unmarshal(got.body, &items), "a bare list")
	var want liqov1beta1.ForeignClusterList
	require.NoError(t, c.broker.Client.List(t.Context(), &want))
	require.Len(t, items, len(want.Items))
	for i, item := range items {
		assert.Equal(t, "ForeignCluster", item["kind"])
		assert.Equal(t, liqov1beta1.GroupVersion.String(), item["apiVersion"])
		meta, ok := item["metadata"].(map[string]any)
		require.True(t, ok)
		assert.NotContains(t, meta, "managedFields")
		assert.Equal(t, want.Items[i].Name, meta["name"])
		spec, ok := item["spec"].(map[string]any)
		require.True(t, ok)
		assert.Equal(t, string(want.Items[i].Spec.ClusterID), spec["clusterID"])
	}

	// Anonymous callers see only the providers, without addresses and messages.
	got = c.stranger.must(t, http.StatusOK, http.MethodGet, "/api/clusters", "")
	var public []liqov1beta1.ForeignCluster
	require.NoError(t, json.Unmarshal(got.body, &public))
	require.Len(t, public, len(c.providers))
	for i := range public {
		assert.Equal(t, c.providers[i].Name, public[i].Name)
	}
	for _, secret := range []string{"https://", "message", c.consumers[0].Name, c.consumers[1].Name} {
		assert.NotContains(t, string(got.body), secret)
	}
}

// toggle: curl "http://…/api/toggle?id=…&enable=…".
func (c *catalogued) toggle(t *testing.T) {
	const id = "provider2"
	path := func(enable string) string { return "/api/toggle" + query("id", id, "enable", enable) }
	before := c.providerOf(t, id)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		got := c.stranger.must(t, http.StatusUnauthorized, method, path("false"), "")
		assert.Contains(t, string(got.body), "/api/toggle?", "the right call")
		assert.Contains(t, string(got.body), "Authorization: Bearer")
		assert.NotEmpty(t, got.header.Get("WWW-Authenticate"))
	}
	require.Equal(t, before.Spec, c.providerOf(t, id).Spec)

	c.operator.must(t, http.StatusNotFound, http.MethodPost, "/api/toggle"+query("id", "nosuch", "enable", "true"), "")
	c.operator.must(t, http.StatusBadRequest, http.MethodPost, path("yes"), "")
	c.operator.must(t, http.StatusBadRequest, http.MethodPost, "/api/toggle"+query("id", id), "")
	require.Equal(t, before.Spec, c.providerOf(t, id).Spec)

	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		_, _ = c.operator.ask(ctx, http.MethodPost, path("true"), "")
	})
	c.operator.must(t, http.StatusOK, http.MethodGet, path("false"), "")
	disabled := c.providerOf(t, id)
	require.Equal(t, ptr.To(false), disabled.Spec.Enabled)
	c.operator.must(t, http.StatusOK, http.MethodGet, path("false"), "")
	require.Equal(t, disabled.Generation, c.providerOf(t, id).Generation, "what changes nothing writes nothing")
	eventually(t, patient, func(ctx context.Context) error {
		got, err := read[api.Provider](ctx, c.stranger, "/api/v1/providers/"+id)
		if err == nil && got.Enabled {
			err = fmt.Errorf("the catalog shows %s enabled", id)
		}
		return err
	})
	c.operator.must(t, http.StatusOK, http.MethodPost, path("true"), "")
	require.Equal(t, ptr.To(true), c.providerOf(t, id).Spec.Enabled)
}

// agrees checks that the catalog shows the state of the API.
func (c *catalogued) agrees(t *testing.T) {
	eventually(t, patient, func(ctx context.Context) error {
		list, err := read[api.ProviderList](ctx, c.stranger, "/api/v1/providers")
		if err != nil {
			return err
		}
		if list.Total != len(c.providers) || len(list.Items) != len(c.providers) {
			return fmt.Errorf("%d of %d providers", len(list.Items), list.Total)
		}
		for i := range list.Items {
			var want brokeringv1alpha1.ProviderCluster
			if err := c.broker.Client.Get(ctx, client.ObjectKey{Name: list.Items[i].ID}, &want); err != nil {
				return err
			}
			got := &list.Items[i]
			if got.Pods != want.Status.Pods || !got.Ready || got.Selected != nil ||
				!got.Resources.Free.Cpu().Equal(*want.Status.Resources.Free.Cpu()) {
				return fmt.Errorf("the catalog shows %+v, the API %+v", got, want.Status)
			}
		}
		return nil
	})
	eventually(t, patient, func(ctx context.Context) error {
		var all []api.Placement
		for path := "/api/v1/placements" + query("limit", "3"); ; {
			list, err := read[api.PlacementList](ctx, c.operator, path)
			if err != nil {
				return err
			}
			all = append(all, list.Items...)
			if list.Continue == "" {
				break
			}
			path = "/api/v1/placements" + query("limit", "3", "continue", list.Continue)
		}
		return c.samePods(ctx, all, c.consumers...)
	})
	c.stranger.must(t, http.StatusUnauthorized, http.MethodGet, "/api/v1/placements", "")
	c.stranger.must(t, http.StatusUnauthorized, http.MethodGet, "/api/v1/policies", "")
	c.stranger.must(t, http.StatusUnauthorized, http.MethodGet, "/api/v1/flows", "")
}

// samePods returns nil if the placements match the pods that these consumers have on the broker's node.
func (c *catalogued) samePods(ctx context.Context, got []api.Placement, consumers ...*sandbox.Cluster) error {
	var shown, want []string
	for i := range got {
		shown = append(shown, strings.Join([]string{got[i].Consumer, got[i].Namespace, got[i].Pod, got[i].Provider, got[i].Phase}, " "))
	}
	for _, consumer := range consumers {
		for _, namespace := range []string{c.mine, c.theirs} {
			list, err := pods(ctx, c.broker, consumer.RemoteNamespace(namespace))
			if err != nil {
				return err
			}
			for i := range list {
				if list[i].Spec.NodeName == brokerNode {
					want = append(want, strings.Join([]string{
						consumer.Name, list[i].Namespace, list[i].Name, list[i].Labels[brokeringv1alpha1.ProviderLabel],
						string(list[i].Status.Phase),
					}, " "))
				}
			}
		}
	}
	slices.Sort(shown)
	slices.Sort(want)
	if len(want) == 0 || !slices.Equal(shown, want) {
		return fmt.Errorf("the catalog shows %q, the API %q", shown, want)
	}
	return nil
}

// ownOnly checks that a consumer sees only its own pods, and changes only its own selection.
func (c *catalogued) ownOnly(t *testing.T) {
	for _, first := range []*caller{c.first, c.firstByToken} {
		eventually(t, patient, func(ctx context.Context) error {
			list, err := read[api.PlacementList](ctx, first, "/api/v1/placements")
			if err != nil {
				return err
			}
			return c.samePods(ctx, list.Items, c.consumers[0])
		})
		me, err := read[api.Me](t.Context(), first, "/api/v1/me")
		require.NoError(t, err)
		assert.Equal(t, c.consumers[0].Name, me.Consumer)
		assert.Equal(t, api.Can{Placements: true, Policies: true, Explain: true, Select: true}, me.Can)

		// The other consumer's data, by every path.
		other := query("consumer", c.consumers[1].Name)
		for _, path := range []string{
			"/api/v1/placements" + other, "/api/v1/flows" + other, "/api/v1/policies" + other, "/api/v1/me" + other,
		} {
			first.must(t, http.StatusForbidden, http.MethodGet, path, "")
		}
		first.must(t, http.StatusForbidden, http.MethodPut, "/api/v1/providers/provider1/selected"+other, `{"selected":false}`)
		first.must(t, http.StatusForbidden, http.MethodPut, "/api/v1/providers/provider1/enabled", `{"enabled":false}`)
		got, err := first.ask(t.Context(), http.MethodGet,
			"/api/v1/explain"+query("namespace", c.consumers[1].RemoteNamespace(c.theirs), "pod", "theirs-0"), "")
		require.NoError(t, err)
		assert.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, got.status, "%s", got.body)
	}

	// The selection, by the current API and by the v0 API.
	selectedBy := func(consumer string) bool {
		chosen, err := orchestrator.Get(t.Context(), c.broker.Client, consumer)
		require.NoError(t, err)
		return chosen.Has("provider1")
	}
	t.Cleanup(func() {
		require.NoError(t, orchestrator.Set(context.Background(), c.broker.Client, c.consumers[0].Name, "provider1", true))
	})
	// The first selection creates the policy; other scenarios may have left one.
	left := &brokeringv1alpha1.PlacementPolicy{ObjectMeta: metav1.ObjectMeta{Name: orchestrator.PolicyName(c.consumers[0].Name)}}
	require.NoError(t, client.IgnoreNotFound(c.broker.Client.Delete(t.Context(), left)))
	c.first.must(t, http.StatusOK, http.MethodPut, "/api/v1/providers/provider1/selected", `{"selected":false}`)
	assert.False(t, selectedBy(c.consumers[0].Name))
	assert.True(t, selectedBy(c.consumers[1].Name))
	c.firstByToken.must(t, http.StatusOK, http.MethodGet, "/api/toggle"+query("id", "provider1", "enable", "true"), "")
	assert.True(t, selectedBy(c.consumers[0].Name))
	c.first.must(t, http.StatusUnauthorized, http.MethodGet, "/api/toggle"+query("id", "provider1", "enable", "false"), "")
	assert.True(t, selectedBy(c.consumers[0].Name), "a certificate, which browsers send by themselves, is not enough for a GET")
	c.first.must(t, http.StatusOK, http.MethodPost, "/api/toggle"+query("id", "provider1", "enable", "false"), "")
	assert.False(t, selectedBy(c.consumers[0].Name))
	assert.Equal(t, ptr.To(true), c.providerOf(t, "provider1").Spec.Enabled)

	for caller, want := range map[*caller]*bool{c.first: ptr.To(false), c.second: ptr.To(true), c.operator: nil} {
		eventually(t, patient, func(ctx context.Context) error {
			got, err := read[api.Provider](ctx, caller, "/api/v1/providers/provider1")
			if err == nil && !ptr.Equal(got.Selected, want) {
				err = fmt.Errorf("%s sees %v", caller.name, got.Selected)
			}
			return err
		})
	}
	// The selection takes effect: new pods of this consumer avoid the provider, the other consumer's do not.
	c.pod(t, c.consumers[0], c.mine, "avoids", "true")
	c.pod(t, c.consumers[1], c.theirs, "goes-there", "provider.id == 'provider1'")
	for consumer, name := range map[*sandbox.Cluster]string{c.consumers[0]: "avoids", c.consumers[1]: "goes-there"} {
		namespace := map[bool]string{true: c.mine, false: c.theirs}[consumer == c.consumers[0]]
		eventually(t, patient, func(ctx context.Context) error {
			var pod corev1.Pod
			key := client.ObjectKey{Namespace: consumer.RemoteNamespace(namespace), Name: name}
			if err := c.broker.Client.Get(ctx, key, &pod); err != nil {
				return err
			}
			at := pod.Labels[brokeringv1alpha1.ProviderLabel]
			if at == "" {
				return fmt.Errorf("pod %s is nowhere", name)
			}
			if (at == "provider1") == (name == "avoids") {
				t.Errorf("pod %s is at %s", name, at)
			}
			return nil
		})
	}
}

// explains checks the table for an existing pod, and for one that does not exist.
func (c *catalogued) explains(t *testing.T) {
	namespace := c.consumers[1].RemoteNamespace(c.theirs)
	got, err := read[explain.Explanation](t.Context(), c.second, "/api/v1/explain"+query("namespace", namespace, "pod", "theirs-0"))
	require.NoError(t, err)
	require.Len(t, got.Providers, 3)
	require.NotEmpty(t, got.Chosen)
	for _, p := range got.Providers {
		sum := 0
		for _, points := range p.Points {
			sum += points
		}
		assert.Equal(t, p.Score, sum, "%+v", p)
	}
	hypothetical := fmt.Sprintf(`{"namespace":%q,"requests":{"cpu":"1000"},"policy":{"filter":"provider.id != 'provider3'"}}`, namespace)
	var table explain.Explanation
	require.NoError(t, json.Unmarshal(c.second.must(t, http.StatusOK, http.MethodPost, "/api/v1/explain", hypothetical).body, &table))
	require.Empty(t, table.Chosen)
	for _, p := range table.Providers {
		assert.NotEmpty(t, p.Filtered, "no provider has 1000 CPUs")
	}
	bad := c.second.must(t, http.StatusUnprocessableEntity, http.MethodPost, "/api/v1/explain",
		fmt.Sprintf(`{"namespace":%q,"policy":{"filter":"provider.nosuch"}}`, namespace))
	assert.Contains(t, string(bad.body), "filter")
	c.stranger.must(t, http.StatusUnauthorized, http.MethodPost, "/api/v1/explain", hypothetical)
	c.first.must(t, http.StatusNotFound, http.MethodPost, "/api/v1/explain", hypothetical)
}

// stream checks that a new pod appears in the stream of its consumer, and not in the other consumer's.
func (c *catalogued) stream(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	follow := func(caller *caller) <-chan string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, caller.base+"/api/v1/events", http.NoBody)
		require.NoError(t, err)
		if caller.token != "" {
			request.Header.Set("Authorization", "Bearer "+caller.token)
		}
		streaming := &http.Client{Transport: caller.client.Transport}
		response, err := streaming.Do(request)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		lines := make(chan string, 1000)
		go func() {
			defer close(lines)
			defer func() { _ = response.Body.Close() }()
			scanner := bufio.NewScanner(response.Body)
			scanner.Buffer(nil, 1<<20)
			for scanner.Scan() {
				caller.tape.add(caller.name, []byte(scanner.Text()))
				lines <- scanner.Text()
			}
		}()
		return lines
	}
	mine, theirs, anonymous := follow(c.first), follow(c.second), follow(c.stranger)
	for _, lines := range []<-chan string{mine, theirs, anonymous} {
		require.Equal(t, "event: sync", <-lines)
	}
	c.pod(t, c.consumers[0], c.mine, "live", "true")
	for line := range mine {
		if strings.HasPrefix(line, "data: ") && strings.Contains(line, `"pod":"live"`) && strings.Contains(line, `"phase":"Running"`) {
			break
		}
	}
	require.NoError(t, ctx.Err(), "the pod was not in its consumer's stream")
	cancel()
	for _, lines := range []<-chan string{theirs, anonymous} {
		for line := range lines {
			assert.NotContains(t, line, "live")
		}
	}
}

// restart checks that the catalog reads the selections back from the API.
func (c *catalogued) restart(t *testing.T) {
	const component = sandbox.Broker + "/" + sandbox.CatalogComponent
	c.first.must(t, http.StatusOK, http.MethodPut, "/api/v1/providers/provider3/selected", `{"selected":false}`)
	require.NoError(t, c.Kill(component))
	c.revive(t, component)
	require.NoError(t, c.Restart(t.Context(), component))
	addresses, err := c.CatalogAddresses(t.Context())
	require.NoError(t, err)
	for _, address := range addresses {
		c.address = address
		first := c.newCaller(t, "consumer1", "", identityOf(t, c.consumers[0], authv1beta1.ControlPlaneIdentityType))
		eventually(t, patient, func(ctx context.Context) error {
			got, err := read[api.Provider](ctx, first, "/api/v1/providers/provider3")
			if err == nil && (got.Selected == nil || *got.Selected) {
				err = fmt.Errorf("the choice of %s is lost: %+v", c.consumers[0].Name, got)
			}
			return err
		})
	}
	require.NoError(t, orchestrator.Set(t.Context(), c.broker.Client, c.consumers[0].Name, "provider3", true))
}

// leaks searches all answers for secrets.
func (c *catalogued) leaks(t *testing.T) {
	all := c.tape.of("")
	require.NotEmpty(t, all)
	for _, mark := range []string{
		"client-key-data", "certificate-authority-data", "PRIVATE KEY", "last-applied-configuration", "managedFields",
		c.operator.token, c.firstByToken.token,
	} {
		assert.NotContains(t, string(all), mark)
	}
	var secrets corev1.SecretList
	require.NoError(t, c.broker.Client.List(t.Context(), &secrets))
	for i := range secrets.Items {
		for key, value := range secrets.Items[i].Data {
			if len(value) >= 16 {
				assert.NotContains(t, string(all), string(value), "%s of Secret %s/%s", key, secrets.Items[i].Namespace,
					secrets.Items[i].Name)
			}
		}
	}
	assert.NotContains(t, string(c.tape.of("consumer1")), "theirs-", "another consumer's pods")
	assert.NotContains(t, string(c.tape.of("consumer2")), "mine-")
	for _, pod := range []string{"theirs-", "mine-"} {
		assert.NotContains(t, string(c.tape.of("stranger")), pod)
	}
}

// certificate checks that both replicas serve the certificate in their Secret.
func (c *catalogued) certificate(t *testing.T) {
	var secret corev1.Secret
	key := client.ObjectKey{Namespace: sandbox.BrokerComponent, Name: sandbox.CatalogComponent}
	require.NoError(t, c.broker.Client.Get(t.Context(), key, &secret))
	kept, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	require.NoError(t, err)
	addresses, err := c.CatalogAddresses(t.Context())
	require.NoError(t, err)
	for _, address := range addresses {
		conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		shown := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
		assert.Equal(t, kept.Leaf.Raw, shown.Raw, address)
		require.NoError(t, conn.Close())
	}
}

// account checks that an attacker with the catalog's account can read only its own Secret, and write only the switches.
func (c *catalogued) account(t *testing.T) {
	ctx := t.Context()
	config := rest.CopyConfig(c.broker.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + sandbox.BrokerComponent + ":" + sandbox.CatalogComponent,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + sandbox.BrokerComponent, "system:authenticated"},
	}
	it, err := client.New(config, client.Options{Scheme: c.broker.Client.Scheme(), Mapper: c.broker.Client.RESTMapper()})
	require.NoError(t, err)

	var secrets corev1.SecretList
	require.NoError(t, c.broker.Client.List(ctx, &secrets))
	for i := range secrets.Items {
		key := client.ObjectKeyFromObject(&secrets.Items[i])
		own := key == client.ObjectKey{Namespace: sandbox.BrokerComponent, Name: sandbox.CatalogComponent}
		assert.Equal(t, !own, kerrors.IsForbidden(it.Get(ctx, key, &corev1.Secret{})), key)
	}
	require.True(t, kerrors.IsForbidden(it.Create(ctx, newPod("default", "intruder"))))

	for what, change := range map[string]func(*brokeringv1alpha1.ProviderCluster){
		"drain a provider":  func(p *brokeringv1alpha1.ProviderCluster) { p.Spec.Drain = true },
		"cordon a provider": func(p *brokeringv1alpha1.ProviderCluster) { p.Spec.Cordoned = true },
		"set a price":       func(p *brokeringv1alpha1.ProviderCluster) { p.Spec.Attributes = map[string]string{"price": "1"} },
		"label a provider":  func(p *brokeringv1alpha1.ProviderCluster) { p.Labels = map[string]string{"a": "b"} },
		"have a provider collected": func(p *brokeringv1alpha1.ProviderCluster) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "gone", UID: "gone"}}
		},
		"annotate a provider too": func(p *brokeringv1alpha1.ProviderCluster) { p.Annotations = map[string]string{"a": "b"} },
	} {
		before := c.providerOf(t, "provider1")
		after := before.DeepCopy()
		change(after)
		err := it.Patch(ctx, after, client.MergeFrom(before))
		assert.ErrorContains(t, err, "the catalog may enable and disable providers only", what)
	}
	selected := &brokeringv1alpha1.Selection{Mode: brokeringv1alpha1.SelectOnly}
	for what, policy := range map[string]*brokeringv1alpha1.PlacementPolicy{
		"a policy for all": {
			ObjectMeta: metav1.ObjectMeta{Name: "for-all"}, Spec: brokeringv1alpha1.PlacementPolicySpec{Filter: "false"},
		},
		"a selection for several": {
			ObjectMeta: metav1.ObjectMeta{Name: "selection-a"},
			Spec:       brokeringv1alpha1.PlacementPolicySpec{Consumers: []string{"a", "b"}, Selection: selected},
		},
		"a selection under another's name": {
			ObjectMeta: metav1.ObjectMeta{Name: "selection-a"},
			Spec:       brokeringv1alpha1.PlacementPolicySpec{Consumers: []string{"b"}, Selection: selected},
		},
	} {
		assert.ErrorContains(t, it.Create(ctx, policy), "the catalog may write the selections of consumers only", what)
	}
}
