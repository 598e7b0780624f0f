package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	authv1beta1 "github.com/liqotech/liqo/apis/authentication/v1beta1"
	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	"github.com/liqotech/liqo/pkg/utils/args"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capacitorset/liqo-broker-vk/pkg/offer"
)

// offerOptions are the flags of the aggregator's offers.
type offerOptions struct {
	class                               string
	overcommit                          float64
	hysteresis                          string
	interval                            time.Duration
	ingressClasses, loadBalancerClasses args.ClassNameList
}

func newOfferOptions() offerOptions {
	return offerOptions{class: "broker", overcommit: 1, hysteresis: "5%", interval: 30 * time.Second}
}

func (o *offerOptions) install(f *pflag.FlagSet) {
	f.StringVar(&o.class, "offer-class", o.class, "The class of the ResourceSlices for which consumers are granted a share of the sum of the providers")
	f.Float64Var(&o.overcommit, "overcommit", o.overcommit, "The factor by which the grants of all consumers together may exceed what the providers granted")
	f.StringVar(&o.hysteresis, "offer-hysteresis", o.hysteresis,
		"The least growth of an offer, in percent, unless the new offer is all that the consumer asks for")
	f.DurationVar(&o.interval, "offer-interval", o.interval, "The least time between an offer and a larger one to the same ResourceSlice")
	f.Var(&o.ingressClasses, "offer-ingress-class", "An ingress class offered to consumers, the default one as NAME;default; may be repeated")
	f.Var(&o.loadBalancerClasses, "offer-load-balancer-class",
		"A load balancer class offered to consumers, the default one as NAME;default; may be repeated")
}

func (o *offerOptions) validate(f *faults) {
	if o.class == "" || o.class == string(authv1beta1.ResourceSliceClassDefault) {
		f.add("--offer-class="+o.class, "use a name other than default, which is Liqo's own class")
	}
	if !(o.overcommit > 0 && o.overcommit <= 1000) {
		f.add(fmt.Sprintf("--overcommit=%v", o.overcommit), "use a number above 0, at most 1000")
	}
	if _, err := percentage(o.hysteresis); err != nil {
		f.add("--offer-hysteresis="+o.hysteresis, err.Error())
	}
	f.positive("--offer-interval", o.interval)
	for flag, classes := range map[string]args.ClassNameList{
		"--offer-ingress-class": o.ingressClasses, "--offer-load-balancer-class": o.loadBalancerClasses,
	} {
		for _, class := range classes.Classes {
			for _, problem := range validation.IsQualifiedName(class.Name) {
				f.add(fmt.Sprintf("%s=%s", flag, class), problem)
			}
		}
	}
}

// percentage parses "5%" as 0.05.
func percentage(text string) (float64, error) {
	number, isPercentage := strings.CutSuffix(text, "%")
	value, err := strconv.ParseFloat(number, 64)
	if !isPercentage || err != nil || !(value >= 0 && value <= 100) {
		return 0, fmt.Errorf("use a percentage from 0%% to 100%%")
	}
	return value / 100, nil
}

// config returns the Config of validated options.
func (o *offerOptions) config() *offer.Config {
	hysteresis, _ := percentage(o.hysteresis) // validate checks it.
	c := &offer.Config{
		Class: authv1beta1.ResourceSliceClass(o.class), Interval: o.interval,
		Rules: offer.Rules{Overcommit: o.overcommit, Hysteresis: hysteresis},
	}
	for _, class := range o.ingressClasses.Classes {
		c.IngressClasses = append(c.IngressClasses, liqov1beta1.IngressType{IngressClassName: class.Name, Default: class.IsDefault})
	}
	for _, class := range o.loadBalancerClasses.Classes {
		c.LoadBalancerClasses = append(c.LoadBalancerClasses,
			liqov1beta1.LoadBalancerType{LoadBalancerClassName: class.Name, Default: class.IsDefault})
	}
	return c
}
