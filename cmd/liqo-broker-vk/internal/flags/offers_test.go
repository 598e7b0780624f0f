package flags

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator"
	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator/share"
)

func TestFlagsOfTheOffers(t *testing.T) {
	o, set := NewOffers(), pflag.NewFlagSet("broker", pflag.ContinueOnError)
	o.Install(set)
	require.NoError(t, set.Parse([]string{
		"--offer-class=gold", "--overcommit=1.5", "--offer-hysteresis=2.5%", "--offer-interval=1m", "--reclaim-after=1h",
		"--offer-ingress-class=nginx;default", "--offer-ingress-class=traefik", "--offer-load-balancer-class=metal",
	}))
	require.Equal(t, &aggregator.Config{
		Class: "gold", Rules: share.Rules{Overcommit: 1.5, Hysteresis: 0.025}, Interval: time.Minute, ReclaimAfter: time.Hour,
		IngressClasses:      []liqov1beta1.IngressType{{IngressClassName: "nginx", Default: true}, {IngressClassName: "traefik"}},
		LoadBalancerClasses: []liqov1beta1.LoadBalancerType{{LoadBalancerClassName: "metal"}},
	}, o.Config())
}
