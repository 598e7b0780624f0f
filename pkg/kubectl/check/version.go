package check

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// image is the name of an image: REPOSITORY[:TAG][@DIGEST].
type image struct{ repository, tag, digest string }

func parseImage(name string) image {
	var i image
	name, i.digest, _ = strings.Cut(name, "@")
	if at := strings.LastIndex(name, ":"); at > strings.LastIndex(name, "/") {
		name, i.tag = name[:at], name[at+1:]
	}
	i.repository = name
	return i
}

// base returns the last part of the repository.
func (i image) base() string { return i.repository[strings.LastIndex(i.repository, "/")+1:] }

// versionOf returns the version that a tag is; nil if it is none.
func versionOf(tag string) *version.Version {
	v, err := version.ParseSemantic(tag)
	if err != nil {
		return nil
	}
	return v
}

// differs compares an image with the broker's. It returns the state and the difference; "" if both are of one version, or
// one of them is not known. The broker may be one minor version newer than others (docs/releases.md).
func differs(broker, other string) (State, string) {
	if broker == "" || other == "" || broker == other {
		return OK, ""
	}
	b, o := parseImage(broker), parseImage(other)
	if b.digest != "" && b.digest == o.digest {
		return OK, "" // A mirror.
	}
	if b.repository == o.repository && (b.tag == "" || o.tag == "") && (b.digest == "" || o.digest == "") {
		return OK, "" // One has a digest and the other a tag: Liqo's chart has no digests.
	}
	bv, ov := versionOf(b.tag), versionOf(o.tag)
	switch {
	case bv == nil || ov == nil || b.base() != o.base():
		return Warn, fmt.Sprintf("the image is %s, and the broker's is %s", other, broker)
	case bv.EqualTo(ov):
		return OK, ""
	case bv.LessThan(ov):
		return Warn, fmt.Sprintf("version %s is newer than the broker's, %s", o.tag, b.tag)
	case bv.Major() != ov.Major() || bv.Minor() > ov.Minor()+1:
		return Fail, fmt.Sprintf("version %s is more than a minor version older than the broker's, %s", o.tag, b.tag)
	}
	return Warn, fmt.Sprintf("version %s is older than the broker's, %s", o.tag, b.tag)
}

// testedLiqo has the minor versions of Liqo v1 in docs/releases.md, and whether all tests ran with them.
func testedLiqo() map[string]bool { return map[string]bool{"1.1": false, "1.2": true, "1.3": false} }

// checkLiqo checks that Liqo is there, and its version.
func (i *installation) checkLiqo() []Check {
	const name = "liqo"
	if i.unserved[virtualNodes] || i.unserved[identities] {
		return []Check{fail(name, "the API server does not serve the kinds of Liqo v1", "liqoctl install --version "+i.Liqo)}
	}
	if checks := i.unread(name, deployments); checks != nil {
		return checks
	}
	if len(i.liqo) == 0 {
		return []Check{warn(name, "no Deployment has the labels of Liqo's controllers, so the version is not known",
			"kubectl get deployments -A -l "+partOfLabel+"=liqo")}
	}
	tag := cmp.Or(i.liqo[0].Labels[versionLabel], parseImage(imageOf(&i.liqo[0].Spec.Template.Spec, "controller-manager")).tag)
	v := versionOf(tag)
	if v == nil {
		return []Check{warn(name, fmt.Sprintf("the version %q is not a release; tested is %s", tag, i.Liqo),
			"helm upgrade liqo liqo --repo https://helm.liqo.io --version "+i.Liqo+" --namespace liqo --reuse-values")}
	}
	all, known := testedLiqo()[fmt.Sprintf("%d.%d", v.Major(), v.Minor())]
	switch {
	case all:
		return []Check{ok(name, "version "+tag)}
	case known:
		return []Check{warn(name, fmt.Sprintf("version %s is tested in parts; all tests ran with %s", tag, i.Liqo), i.upgradeLiqo())}
	case v.Major() == 0:
		return []Check{fail(name, fmt.Sprintf("version %s: the broker needs Liqo v1", tag), i.upgradeLiqo())}
	}
	return []Check{warn(name, fmt.Sprintf("version %s is not tested; all tests ran with %s", tag, i.Liqo), i.upgradeLiqo())}
}

func (i *installation) upgradeLiqo() string {
	return "helm upgrade liqo liqo --repo https://helm.liqo.io --version " + i.Liqo + " --namespace " + i.liqo[0].Namespace +
		" --reuse-values"
}
