package flags

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

	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator"
	"github.com/capacitorset/liqo-broker-vk/pkg/aggregator/share"
)

// Offers are the flags of the aggregator's offers.
type Offers struct {
	Class      string
	Overcommit float64
	Hysteresis string
	Interval   time.Duration
	// ReclaimAfter is how long pods run beyond the grant of their consumer while others have a right to it; 0 is always.
	ReclaimAfter                                        time.Duration
	IngressClasses, LoadBalancerClasses, StorageClasses args.ClassNameList
}

// NewOffers returns the defaults.
func NewOffers() Offers {
	return Offers{Class: "broker", Overcommit: 1, Hysteresis: "5%", Interval: 30 * time.Second, ReclaimAfter: 10 * time.Minute}
}

// Install adds the flags.
func (o *Offers) Install(f *pflag.FlagSet) {
	f.StringVar(&o.Class, "offer-class", o.Class,
		"The class of the ResourceSlices that are granted a share of the sum of the providers' resources")
	f.Float64Var(&o.Overcommit, "overcommit", o.Overcommit,
		"The factor by which the grants to all consumers together may exceed the grants of the providers")
	f.StringVar(&o.Hysteresis, "offer-hysteresis", o.Hysteresis,
		"The minimum growth of an offer, in percent, unless the new offer covers the whole request of the consumer")
	f.DurationVar(&o.Interval, "offer-interval", o.Interval, "The minimum time between an offer and a larger one to the same ResourceSlice")
	f.DurationVar(&o.ReclaimAfter, "reclaim-after", o.ReclaimAfter,
		"How long pods run beyond the grant of their consumer while other consumers have a right to that, until the youngest leave; "+
			"0 lets them stay")
	f.Var(&o.IngressClasses, "offer-ingress-class",
		"An ingress class offered to consumers, the default one as NAME;default; may be repeated")
	f.Var(&o.LoadBalancerClasses, "offer-load-balancer-class",
		"A load balancer class offered to consumers, the default one as NAME;default; may be repeated")
	f.Var(&o.StorageClasses, "offer-storage-class",
		"A storage class of this cluster, of the provisioner liqo.io/storage, offered to consumers "+
			"for volumes at the providers, the default one as NAME;default; may be repeated")
}

// Validate adds the faults.
func (o *Offers) Validate(f *Faults) {
	if o.Class == "" || o.Class == string(authv1beta1.ResourceSliceClassDefault) {
		f.Add("--offer-class="+o.Class, "use a name other than default, which is Liqo's own class")
	}
	if !(o.Overcommit > 0 && o.Overcommit <= 1000) {
		f.Add(fmt.Sprintf("--overcommit=%v", o.Overcommit), "use a number above 0, at most 1000")
	}
	if _, err := percentage(o.Hysteresis); err != nil {
		f.Add("--offer-hysteresis="+o.Hysteresis, err.Error())
	}
	f.Positive("--offer-interval", o.Interval)
	f.When(o.ReclaimAfter < 0, fmt.Sprintf("--reclaim-after=%s", o.ReclaimAfter), "use a duration, or 0 to let pods stay")
	for flag, classes := range map[string]args.ClassNameList{
		"--offer-ingress-class": o.IngressClasses, "--offer-load-balancer-class": o.LoadBalancerClasses,
		"--offer-storage-class": o.StorageClasses,
	} {
		for _, class := range classes.Classes {
			for _, problem := range validation.IsQualifiedName(class.Name) {
				f.Add(fmt.Sprintf("%s=%s", flag, class), problem)
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

// Config returns the Config of validated options.
func (o *Offers) Config() *aggregator.Config {
	hysteresis, _ := percentage(o.Hysteresis) // Validate checks it.
	c := &aggregator.Config{
		Class: authv1beta1.ResourceSliceClass(o.Class), Interval: o.Interval, ReclaimAfter: o.ReclaimAfter,
		Rules: share.Rules{Overcommit: o.Overcommit, Hysteresis: hysteresis},
	}
	for _, class := range o.IngressClasses.Classes {
		c.IngressClasses = append(c.IngressClasses, liqov1beta1.IngressType{IngressClassName: class.Name, Default: class.IsDefault})
	}
	for _, class := range o.LoadBalancerClasses.Classes {
		c.LoadBalancerClasses = append(c.LoadBalancerClasses,
			liqov1beta1.LoadBalancerType{LoadBalancerClassName: class.Name, Default: class.IsDefault})
	}
	for _, class := range o.StorageClasses.Classes {
		c.StorageClasses = append(c.StorageClasses, liqov1beta1.StorageType{StorageClassName: class.Name, Default: class.IsDefault})
	}
	return c
}
