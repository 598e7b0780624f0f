package check

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	"github.com/liqotech/liqo/pkg/vkMachinery"
)

// broker returns the Deployment of the broker; nil if there is none. Of several, it is one for the node, if there is one.
func (i *installation) broker() *appsv1.Deployment {
	for j := range i.brokers {
		if served, _ := argument(argumentsOf(&i.brokers[j].Spec.Template.Spec, "broker"), "broker-node"); served == i.Node {
			return &i.brokers[j]
		}
	}
	if len(i.brokers) == 0 {
		return nil
	}
	return &i.brokers[0]
}

// argument returns the value of an argument of the broker; "" if it is not set, or there is no broker.
func (i *installation) argument(name string) string {
	broker := i.broker()
	if broker == nil {
		return ""
	}
	value, _ := argument(argumentsOf(&broker.Spec.Template.Spec, "broker"), name)
	return value
}

// enabled returns the value of an argument that is true or false; otherwise is its default.
func (i *installation) enabled(name string, otherwise bool) bool {
	on, err := strconv.ParseBool(i.argument(name))
	if err != nil {
		return otherwise
	}
	return on
}

// image returns the image of the broker; "" if that is not known.
func (i *installation) image() string {
	broker := i.broker()
	if broker == nil {
		return ""
	}
	return imageOf(&broker.Spec.Template.Spec, "broker")
}

// served returns the VirtualNodes whose clusters are providers of the broker.
func (i *installation) served() []*offloadingv1beta1.VirtualNode {
	selector, err := labels.Parse(i.argument("provider-selector"))
	if err != nil {
		selector = labels.Everything() // The broker does not start.
	}
	var served []*offloadingv1beta1.VirtualNode
	for j := range i.virtualNodes {
		if selector.Matches(labels.Set(i.virtualNodes[j].Labels)) {
			served = append(served, &i.virtualNodes[j])
		}
	}
	return served
}

// containerOf returns the container with a name, or else the first one; nil without containers.
func containerOf(spec *corev1.PodSpec, name string) *corev1.Container {
	at := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	switch {
	case at >= 0:
		return &spec.Containers[at]
	case len(spec.Containers) > 0:
		return &spec.Containers[0]
	}
	return nil
}

func argumentsOf(spec *corev1.PodSpec, container string) []string {
	c := containerOf(spec, container)
	if c == nil {
		return nil
	}
	return append(slices.Clone(c.Command), c.Args...)
}

func imageOf(spec *corev1.PodSpec, container string) string {
	c := containerOf(spec, container)
	if c == nil {
		return ""
	}
	return c.Image
}

// kubeletOf returns the pod of a VirtualNode's virtual kubelet; nil while Liqo has not made it.
func kubeletOf(vn *offloadingv1beta1.VirtualNode) *corev1.PodSpec {
	if vn.Spec.Template == nil || len(vn.Spec.Template.Spec.Template.Spec.Containers) == 0 {
		return nil
	}
	return &vn.Spec.Template.Spec.Template.Spec
}

// kubeletContainer is the name of the container of a virtual kubelet.
const kubeletContainer = vkMachinery.ContainerName

// argument returns the value of the last argument with a name: of --name=value, or of --name value. The value of --name alone
// is "true".
func argument(args []string, name string) (value string, found bool) {
	for j, arg := range args {
		text, isFlag := strings.CutPrefix(arg, "--")
		key, given, assigned := strings.Cut(text, "=")
		if !isFlag || key != name {
			continue
		}
		switch {
		case assigned:
			value = given
		case j+1 < len(args) && !strings.HasPrefix(args[j+1], "-"):
			value = args[j+1]
		default:
			value = "true"
		}
		found = true
	}
	return value, found
}

// quoted returns a word as a shell reads it.
func quoted(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
