package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqotech/liqo/pkg/consts"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// memoryName is the ConfigMap with the memory, memoryKey its key. It is in the broker's namespace, where only
// administrators write. The leader's lease is written each second, and the Node's lease is deleted with the Node.
const (
	memoryName = "liqo-broker-node"
	memoryKey  = "node.json"
)

// memory is the cordon, and the labels and taints that others have set on the Node. A Node that is restored gets them
// back.
type memory struct {
	// Node is the name of the Node.
	Node string `json:"node"`
	// Unschedulable is the cordon; NoProvider reports that it is the broker's.
	Unschedulable bool              `json:"unschedulable,omitempty"`
	NoProvider    bool              `json:"noProvider,omitempty"`
	Taints        []corev1.Taint    `json:"taints,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// memoryOf returns the memory of a Node. Kubernetes itself sets the taints of the Node's state again.
func memoryOf(current, forged *corev1.Node) *memory {
	_, marked := current.Annotations[v1alpha1.NoProviderAnnotation]
	m := &memory{
		Node: current.Name, Unschedulable: current.Spec.Unschedulable, NoProvider: marked, Labels: maps.Clone(current.Labels),
	}
	for key := range forged.Labels {
		delete(m.Labels, key)
	}
	for _, taint := range current.Spec.Taints {
		prefix, _, _ := strings.Cut(taint.Key, "/")
		if prefix != "node.kubernetes.io" && prefix != "node.cloudprovider.kubernetes.io" {
			m.Taints = append(m.Taints, taint)
		}
	}
	return m
}

// restore sets the remembered cordon, labels and taints on a forged Node.
func (m *memory) restore(forged *corev1.Node) {
	if m == nil || m.Node != forged.Name {
		return
	}
	forged.Spec.Unschedulable = m.Unschedulable
	if m.NoProvider {
		metav1.SetMetaDataAnnotation(&forged.ObjectMeta, v1alpha1.NoProviderAnnotation, "true")
	}
	for key, value := range m.Labels {
		if _, own := forged.Labels[key]; !own {
			forged.Labels[key] = value
		}
	}
	if hasTaint(m.Taints) {
		forged.Spec.Taints = nil // An administrator may have changed its value or effect.
	}
	forged.Spec.Taints = append(forged.Spec.Taints, m.Taints...)
}

// hasTaint reports whether pods that are not for virtual nodes are kept away.
func hasTaint(taints []corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == consts.VirtualNodeTolerationKey })
}

// load returns the stored memory of the Node; nil if there is none.
func (n *Node) load(ctx context.Context) (*memory, error) {
	stored, err := n.Kube.CoreV1().ConfigMaps(n.Namespace).Get(ctx, memoryName, metav1.GetOptions{})
	switch {
	case kerrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // Nothing is an answer.
	case err != nil:
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", n.Namespace, memoryName, err)
	}
	m := &memory{}
	if err := json.Unmarshal([]byte(stored.Data[memoryKey]), m); err != nil {
		n.Log.Error(err, "Cannot decode the stored cordon, labels and taints of the node, ignoring them", "configMap", memoryName)
		return nil, nil //nolint:nilnil // As above.
	}
	return m, nil
}

// store keeps the memory for the next leader. It belongs to the ClusterRole of the broker's installation, as the Node
// does.
func (n *Node) store(ctx context.Context, m *memory) error {
	if n.stored != nil && equality.Semantic.DeepEqual(n.stored, m) {
		return nil
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	owners, err := n.owners(ctx)
	if err != nil {
		return err
	}
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: memoryName, OwnerReferences: owners},
		Data:       map[string]string{memoryKey: string(text)},
	}
	configMaps := n.Kube.CoreV1().ConfigMaps(n.Namespace)
	if _, err = configMaps.Update(ctx, wanted, metav1.UpdateOptions{}); kerrors.IsNotFound(err) {
		_, err = configMaps.Create(ctx, wanted, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s: %w", n.Namespace, memoryName, err)
	}
	n.stored = m
	return nil
}
