package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	offloadingv1beta1 "github.com/liqotech/liqo/apis/offloading/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// liqoCheckTimeout is the deadline of the request that checks the version of Liqo.
const liqoCheckTimeout = 10 * time.Second

// groupOfV0 is the group of Liqo v0.x's ShadowPods and NamespaceMaps, which v1 does not have.
const groupOfV0 = "virtualkubelet.liqo.io"

// liqoV0Error means that Liqo v0.x is installed, and not Liqo v1.
type liqoV0Error struct{ missing schema.GroupVersion }

func (e *liqoV0Error) Error() string {
	return fmt.Sprintf("the API server serves %s and not %s: Liqo v0.x is installed, and the broker needs Liqo v1 in its cluster "+
		"(with Liqo v0.x, use the image only as virtual kubelet and as catalog)", groupOfV0, e.missing)
}

// requireLiqo returns an error if the API server does not serve Liqo v1: a *liqoV0Error if it serves Liqo v0.x. It
// returns nil if the API server does not answer: the components that need it retry, and return their own errors.
func requireLiqo(ctx context.Context, home *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(home)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, liqoCheckTimeout)
	defer cancel()
	var served metav1.APIGroupList
	if err := client.RESTClient().Get().AbsPath("/apis").Do(ctx).Into(&served); err != nil {
		return nil // See above.
	}
	return checkLiqo(&served)
}

// checkLiqo returns an error if Liqo v1 is missing from the API groups that an API server serves.
func checkLiqo(served *metav1.APIGroupList) error {
	serves := func(version schema.GroupVersion) bool {
		return slices.ContainsFunc(served.Groups, func(group metav1.APIGroup) bool {
			return group.Name == version.Group && slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool {
				return v.Version == version.Version
			})
		})
	}
	isV0 := slices.ContainsFunc(served.Groups, func(group metav1.APIGroup) bool { return group.Name == groupOfV0 })
	for _, version := range []schema.GroupVersion{
		liqov1beta1.GroupVersion, authv1beta1.GroupVersion, offloadingv1beta1.SchemeGroupVersion,
	} {
		switch {
		case serves(version):
		case isV0:
			return &liqoV0Error{version}
		default:
			return fmt.Errorf("the API server does not serve %s: install Liqo v1.2 in the broker's cluster", version)
		}
	}
	return nil
}
