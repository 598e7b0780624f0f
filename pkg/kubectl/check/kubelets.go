package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
)

// defaultTemplate is the name of the template that Liqo uses for a VirtualNode that names none.
const defaultTemplate = "virtual-kubelet-default"

// liqosKubelet is the last part of the name of Liqo's own image.
const liqosKubelet = "virtual-kubelet"

// checkOptions checks the template from which Liqo makes the virtual kubelets of this cluster.
func (i *installation) checkOptions() []Check {
	const name = "virtual-kubelet-options"
	if i.unserved[templates] {
		return nil // Liqo is missing.
	}
	if checks := i.unread(name, templates); checks != nil {
		return checks
	}
	at := slices.IndexFunc(i.templates, func(t offloadingv1beta1.VkOptionsTemplate) bool { return t.Name == defaultTemplate })
	if at < 0 {
		return []Check{fail(name, "the VkOptionsTemplate "+defaultTemplate+" does not exist",
			"helm upgrade liqo liqo --repo https://helm.liqo.io --version "+i.Liqo+" --namespace liqo --reuse-values")}
	}
	t := &i.templates[at]
	state, problems := i.checkKubelet(t.Spec.ContainerImage, t.Spec.ExtraArgs)
	if t.Spec.CreateNode {
		state, problems = Fail, append(problems, "createNode is true, and the pods of the broker's node have no other one")
	}
	if len(problems) == 0 {
		return []Check{ok(name, fmt.Sprintf("%s/%s serves the node %s", t.Namespace, t.Name, i.Node))}
	}
	return []Check{{
		Name: name, State: state, Message: strings.Join(problems, "; "), Remedy: i.patchOptions(t),
	}}
}

// checkKubelet checks the image and the arguments of a virtual kubelet of this cluster.
func (i *installation) checkKubelet(image string, args []string) (State, []string) {
	state, problems := OK, []string(nil)
	add := func(s State, problem string) {
		problems = append(problems, problem)
		if s.worse(state) {
			state = s
		}
	}
	broker := parseImage(i.image())
	if own := parseImage(image); own.base() == liqosKubelet && own.repository != broker.repository {
		add(Fail, fmt.Sprintf("the image %s is Liqo's, which does not serve the broker's node", image))
	} else if s, difference := differs(i.image(), image); difference != "" {
		add(s, difference)
	}
	switch node, found := argument(args, "broker-node"); {
	case !found:
		add(Fail, "the argument --broker-node="+i.Node+" is missing")
	case node != i.Node:
		add(Fail, fmt.Sprintf("it serves the node %s, and not %s", node, i.Node))
	}
	if support, _ := argument(args, "enable-apiserver-support"); support == "true" {
		add(Fail, "--enable-apiserver-support is true, and providers refuse the variables that the consumer has already added")
	}
	return state, problems
}

// patchOptions returns the command that corrects a template, and keeps its other arguments.
func (i *installation) patchOptions(t *offloadingv1beta1.VkOptionsTemplate) string {
	args := slices.DeleteFunc(slices.Clone(t.Spec.ExtraArgs), func(arg string) bool {
		_, node := argument([]string{arg}, "broker-node")
		_, support := argument([]string{arg}, "enable-apiserver-support")
		return node || support
	})
	spec := map[string]any{
		"createNode": false, "extraArgs": append([]string{"--broker-node=" + i.Node, "--enable-apiserver-support=false"}, args...),
	}
	if image := i.image(); image != "" {
		spec["containerImage"] = image
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return "kubectl -n " + t.Namespace + " edit vkoptionstemplate " + t.Name
	}
	return fmt.Sprintf("kubectl -n %s patch vkoptionstemplate %s --type=merge -p %s", t.Namespace, t.Name, quoted(string(patch)))
}

// checkVirtualKubelets checks the virtual kubelets of the providers. A VirtualNode keeps the image and the arguments with
// which it was created.
func (i *installation) checkVirtualKubelets() []Check {
	if i.unserved[virtualNodes] {
		return nil // Liqo is missing.
	}
	if checks := i.unread("virtual-kubelets", virtualNodes); checks != nil {
		return checks
	}
	var checks []Check
	for _, vn := range i.served() {
		name := "virtual-kubelet/" + vn.Namespace + "/" + vn.Name
		spec := kubeletOf(vn)
		if spec == nil {
			checks = append(checks, warn(name, "Liqo has not made its Deployment yet", fmt.Sprintf("kubectl -n %s describe virtualnode %s",
				vn.Namespace, vn.Name)))
			continue
		}
		image, args := imageOf(spec, kubeletContainer), argumentsOf(spec, kubeletContainer)
		state, problems := i.checkKubelet(image, args)
		_, others := i.checkKubelet(i.image(), args)
		if ptr.Deref(vn.Spec.CreateNode, false) {
			const own = "it has a Node of its own (createNode)"
			state, problems, others = Fail, append(problems, own), append(others, own)
		}
		if len(problems) == 0 {
			checks = append(checks, ok(name, "image "+image))
			continue
		}
		remedy := fmt.Sprintf("kubectl -n %s delete virtualnode %s", vn.Namespace, vn.Name)
		if len(others) == 0 { // The image is the only problem.
			remedy = i.patchImage(vn)
		}
		checks = append(checks, Check{Name: name, State: state, Message: strings.Join(problems, "; "), Remedy: remedy})
	}
	return checks
}

// patchImage returns the command that gives a virtual kubelet the image of the broker.
func (i *installation) patchImage(vn *offloadingv1beta1.VirtualNode) string {
	spec := kubeletOf(vn)
	at := 0
	for j := range spec.Containers {
		if spec.Containers[j].Name == kubeletContainer {
			at = j
		}
	}
	return fmt.Sprintf(`kubectl -n %s patch virtualnode %s --type=json `+
		`-p '[{"op": "replace", "path": "/spec/template/spec/template/spec/containers/%d/image", "value": "%s"}]'`,
		vn.Namespace, vn.Name, at, i.image())
}
