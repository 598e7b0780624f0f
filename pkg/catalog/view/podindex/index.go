// Package podindex indexes the pods of the broker's node, as the catalog shows them. The cost of a page of any
// selection is about proportional to the number of pods in the page.
package podindex

import (
	"strings"

	"github.com/google/btree"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/informers"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
)

// degree of the trees: about how many items a node of them has. A lower degree makes large trees deeper, a higher one
// makes trees of a few pods larger.
const degree = 16

// tree has pods by namespace and name.
type tree = btree.BTreeG[*Pod]

// Index has the pods of the node. It is not safe for concurrent use, except for methods that only read.
type Index struct {
	all, waiting                        *tree
	byNamespace, byProvider, byConsumer map[string]*tree
	// flows counts the pods that are not terminal, by consumer and provider.
	flows map[string]map[string]int
	nodes *btree.FreeListG[*Pod]
}

// New returns an empty Index.
func New() *Index {
	x := &Index{
		byNamespace: map[string]*tree{}, byProvider: map[string]*tree{}, byConsumer: map[string]*tree{},
		flows: map[string]map[string]int{}, nodes: btree.NewFreeListG[*Pod](btree.DefaultFreeListSize),
	}
	x.all, x.waiting = x.newTree(), x.newTree()
	return x
}

func (x *Index) newTree() *tree {
	return btree.NewWithFreeListG(degree, func(a, b *Pod) bool { return informers.Compare(a.Name(), b.Name()) < 0 }, x.nodes)
}

// at is a pod to search for in a tree.
func at(name types.NamespacedName) *Pod {
	return &Pod{Shown: api.Placement{Namespace: name.Namespace, Pod: name.Name}}
}

// Len returns the number of pods.
func (x *Index) Len() int { return x.all.Len() }

// Get returns nil if there is no such pod.
func (x *Index) Get(name types.NamespacedName) *Pod {
	found, _ := x.all.Get(at(name))
	return found
}

// Namespace returns the pods in a namespace.
func (x *Index) Namespace(name string) []*Pod {
	index := x.byNamespace[name]
	if index == nil {
		return nil
	}
	pods := make([]*Pod, 0, index.Len())
	index.Ascend(func(p *Pod) bool {
		pods = append(pods, p)
		return true
	})
	return pods
}

// Set adds a pod, or replaces the pod of that name, which it returns; nil if there was none.
func (x *Index) Set(p *Pod) (before *Pod) {
	before = x.Remove(p.Name())
	x.all.ReplaceOrInsert(p)
	x.insert(x.byNamespace, p.Shown.Namespace, p)
	x.insert(x.byProvider, p.Shown.Provider, p)
	x.insert(x.byConsumer, p.Shown.Consumer, p)
	if p.waiting() {
		x.waiting.ReplaceOrInsert(p)
	}
	x.count(p, 1)
	return before
}

// Remove removes the pod of a name, and returns it; nil if there was none.
func (x *Index) Remove(name types.NamespacedName) *Pod {
	before, ok := x.all.Delete(at(name))
	if !ok {
		return nil
	}
	remove(x.byNamespace, before.Shown.Namespace, before)
	remove(x.byProvider, before.Shown.Provider, before)
	remove(x.byConsumer, before.Shown.Consumer, before)
	x.waiting.Delete(before)
	x.count(before, -1)
	return before
}

// insert adds a pod to the tree of a key. There is no tree of the key "", because no filter has that key.
func (x *Index) insert(index map[string]*tree, key string, p *Pod) {
	if key == "" {
		return
	}
	if index[key] == nil {
		index[key] = x.newTree()
	}
	index[key].ReplaceOrInsert(p)
}

func remove(index map[string]*tree, key string, p *Pod) {
	if key == "" {
		return
	}
	if index[key].Delete(p); index[key].Len() == 0 {
		delete(index, key)
	}
}

// Pod is a pod of the broker's node. It is never changed.
type Pod struct {
	Shown api.Placement
	// terminal pods wait for no provider, and are in no flow.
	terminal bool
	// text is searched.
	text string
	// Encoded is the JSON of Shown.
	Encoded *api.Encoded
}

// NewPod returns a pod of a consumer; the consumer "" is the broker's own cluster.
func NewPod(pod *corev1.Pod, consumer string) *Pod {
	p := &Pod{Shown: api.PlacementOf(pod, consumer), terminal: placement.Terminal(pod), Encoded: &api.Encoded{}}
	p.text = textOf(&p.Shown)
	return p
}

// WithConsumer returns the same pod, of another consumer.
func (p *Pod) WithConsumer(consumer string) *Pod {
	out := *p
	out.Encoded = &api.Encoded{}
	out.Shown.Consumer = consumer
	out.text = textOf(&out.Shown)
	return &out
}

// Name returns the namespace and the name.
func (p *Pod) Name() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Shown.Namespace, Name: p.Shown.Pod}
}

func (p *Pod) waiting() bool { return p.Shown.Provider == "" && !p.terminal }

func textOf(p *api.Placement) string {
	return strings.ToLower(p.Namespace + "/" + p.Pod + "\n" + p.Provider + "\n" + p.Consumer)
}
