package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// Right is a verb on a resource, in all namespaces. Group is "" for Kubernetes' core.
type Right struct{ Verb, Group, Resource string }

// String returns the right as kubectl names resources: VERB RESOURCE[.GROUP].
func (r Right) String() string { return r.Verb + " " + string(r.resource()) }

func (r Right) resource() resource {
	if r.Group == "" {
		return resource(r.Resource)
	}
	return resource(r.Resource + "." + r.Group)
}

// Command has commands of the plugin that need the same rights.
type Command struct {
	// Name is short and without spaces; Runs lists the commands.
	Name, Runs string
	Rights     []Right
}

// Commands returns the commands with their rights, as in docs/cli.md.
func Commands() []Command {
	ours := func(verb, name string) Right { return Right{verb, "brokering.liqo.io", name} }
	offloading := func(verb, name string) Right { return Right{verb, "offloading.liqo.io", name} }
	core := func(verb, name string) Right { return Right{verb, "", name} }
	explain := []Right{
		core("get", "pods"), core("list", "pods"), core("get", "namespaces"), core("list", "namespaces"),
		offloading("list", "virtualnodes"), offloading("list", "namespacemaps"),
		ours("list", "providerclusters"), ours("list", "placementpolicies"), ours("get", "placementpolicies"),
		core("get", "persistentvolumeclaims"), core("get", "persistentvolumes"),
	}
	return []Command{
		{"get", "get", []Right{
			ours("get", "providerclusters"), ours("list", "providerclusters"), ours("get", "placementpolicies"),
			ours("list", "placementpolicies"), ours("get", "consumerclusters"), ours("list", "consumerclusters"),
			core("get", "pods"), core("list", "pods"), core("get", "namespaces"),
			core("list", "namespaces"),
			{"get", "core.liqo.io", "foreignclusters"},
		}},
		{"explain", "explain", explain},
		{"drain-dry-run", "drain --dry-run", append(slices.Clone(explain), ours("get", "providerclusters"))},
		{
			"drain", "enable, disable, cordon, uncordon, drain",
			[]Right{ours("get", "providerclusters"), ours("patch", "providerclusters")},
		},
		{"enable-consumer", "enable --consumer, disable --consumer", []Right{
			ours("get", "providerclusters"), ours("get", "placementpolicies"), ours("create", "placementpolicies"),
			ours("update", "placementpolicies"),
			{"get", "core.liqo.io", "foreignclusters"},
		}},
	}
}

// readRights asks the API server for the caller's rights, and for its name if it lacks one.
func (i *installation) readRights(ctx context.Context) error {
	lacks := len(i.denied) > 0
	for _, command := range Commands() {
		for _, right := range command.Rights {
			if _, known := i.rights[right]; known {
				continue
			}
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: right.Verb, Group: right.Group, Resource: right.Resource},
			}}
			if err := i.Client.Review(ctx, review); err != nil {
				return fmt.Errorf("asking whether the caller may %s: %w", right, err)
			}
			i.rights[right] = review.Status.Allowed
			lacks = lacks || !review.Status.Allowed
		}
	}
	if !lacks {
		return nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := i.Client.Review(ctx, review); err != nil {
		return fmt.Errorf("asking for the name of the caller: %w", err)
	}
	i.caller = review.Status.UserInfo.Username
	return nil
}

// checkRights checks whether the caller may run the other commands.
func (i *installation) checkRights() []Check {
	commands := Commands()
	checks := make([]Check, 0, len(commands))
	for _, command := range commands {
		name := "rights/" + command.Name
		missing := slices.DeleteFunc(slices.Clone(command.Rights), func(r Right) bool { return i.rights[r] })
		if len(missing) == 0 {
			checks = append(checks, ok(name, "the caller may run "+command.Runs))
			continue
		}
		texts := make([]string, 0, len(missing))
		for _, right := range missing {
			texts = append(texts, right.String())
		}
		checks = append(checks, warn(name, fmt.Sprintf("the caller may not %s, as these need: %s",
			strings.Join(texts, ", "), command.Runs), i.grantAll(missing)))
	}
	return checks
}

// grantAll returns the commands by which an administrator grants the caller rights: a ClusterRole for each set of verbs.
func (i *installation) grantAll(rights []Right) string {
	verbs := map[resource][]string{}
	var order []resource
	for _, right := range rights {
		r := right.resource()
		if verbs[r] == nil {
			order = append(order, r)
		}
		verbs[r] = append(verbs[r], right.Verb)
	}
	var commands []string
	for len(order) > 0 {
		first := order[0]
		same := func(r resource) bool { return slices.Equal(verbs[r], verbs[first]) }
		together := slices.DeleteFunc(slices.Clone(order), func(r resource) bool { return !same(r) })
		order = slices.DeleteFunc(order, same)
		commands = append(commands, i.grant(verbs[first], together...))
	}
	return strings.Join(commands, " && ")
}

// grant returns the commands by which an administrator grants the caller verbs on resources.
func (i *installation) grant(verbs []string, resources ...resource) string {
	names := make([]string, 0, len(resources))
	for _, r := range resources {
		names = append(names, string(r))
	}
	role := "kubectl-broker-" + strings.Join(verbs, "-") + "-" + strings.SplitN(names[0], ".", 2)[0]
	return fmt.Sprintf("kubectl create clusterrole %s --verb=%s --resource=%s && "+
		"kubectl create clusterrolebinding %s --clusterrole=%s --user=%s", role, strings.Join(verbs, ","), strings.Join(names, ","),
		role, role, quoted(orElse(i.caller, "<the caller>")))
}
