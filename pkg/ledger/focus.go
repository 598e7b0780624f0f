package ledger

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capacitorset/liqo-broker-vk/pkg/price"
)

// focusColumns are columns of the FinOps Open Cost and Usage Specification (FOCUS 1.3), which tools for costs of clouds
// read. Those that are absent have no value here.
var focusColumns = []struct {
	name string
	of   func(*Charge) string
}{
	{"BillingAccountId", (*Charge).Account},
	{"BillingAccountName", (*Charge).Account},
	{"BillingCurrency", func(c *Charge) string { return c.Price.Currency }},
	{"BillingPeriodStart", func(c *Charge) string { return timestamp(MonthOf(c.From)) }},
	{"BillingPeriodEnd", func(c *Charge) string { return timestamp(MonthOf(c.From).AddDate(0, 1, 0)) }},
	{"ChargePeriodStart", func(c *Charge) string { return timestamp(c.From) }},
	{"ChargePeriodEnd", func(c *Charge) string { return timestamp(c.To) }},
	{"ChargeCategory", func(*Charge) string { return "Usage" }},
	{"ChargeClass", func(*Charge) string { return "" }},
	{"ChargeDescription", func(c *Charge) string { return fmt.Sprintf("%s of pod %s/%s", c.Resource, c.Namespace, c.Pod) }},
	{"ChargeFrequency", func(*Charge) string { return "Usage-Based" }},
	{"BilledCost", costOf},
	{"EffectiveCost", costOf},
	{"ListCost", costOf},
	{"ContractedCost", costOf},
	{"ListUnitPrice", priceOf},
	{"ContractedUnitPrice", priceOf},
	{"PricingCategory", func(*Charge) string { return "Standard" }},
	{"PricingQuantity", quantityOf},
	{"PricingUnit", unitOf},
	{"ConsumedQuantity", quantityOf},
	{"ConsumedUnit", unitOf},
	{"PricingCurrency", func(c *Charge) string { return c.Price.Currency }},
	{"ServiceCategory", func(*Charge) string { return "Compute" }},
	{"ServiceSubcategory", func(*Charge) string { return "Containers" }},
	{"ServiceName", func(*Charge) string { return "Kubernetes pods" }},
	{"ServiceProviderName", func(*Charge) string { return "broker" }},
	{"HostProviderName", func(c *Charge) string { return c.Provider }},
	{"InvoiceIssuerName", func(*Charge) string { return "broker" }},
	{"SubAccountId", func(c *Charge) string { return c.Namespace }},
	{"SubAccountName", func(c *Charge) string { return c.Namespace }},
	{"ResourceId", func(c *Charge) string { return string(c.UID) }},
	{"ResourceName", func(c *Charge) string { return c.Pod }},
	{"ResourceType", func(*Charge) string { return "Pod" }},
	{"SkuId", func(c *Charge) string { return string(c.Resource) }},
	{"SkuPriceId", func(c *Charge) string { return c.Provider + "/" + string(c.Resource) }},
	{"Tags", func(c *Charge) string { return fmt.Sprintf("{%q: %q}", "workload", c.Workload) }},
}

// ownPods stands for the pods of the broker's own cluster. No cluster has such an id.
const ownPods = "(broker)"

// Account returns the consumer's id, or the name of the broker's own pods.
func (c *Charge) Account() string {
	if c.Consumer == "" {
		return ownPods
	}
	return c.Consumer
}

func costOf(c *Charge) string     { return decimal(c.Cost) }
func priceOf(c *Charge) string    { return decimal(c.Price.Value) }
func quantityOf(c *Charge) string { return decimal(c.Quantity) }

// unitOf is the unit of a quantity, as FOCUS forms them.
func unitOf(c *Charge) string {
	switch {
	case c.Resource == corev1.ResourceCPU:
		return "Core-Hours"
	case price.Units(c.Resource, 1<<30) == 1:
		return "GiB-Hours"
	case c.Resource == corev1.ResourcePods:
		return "Pod-Hours"
	}
	return string(c.Resource) + "-Hours"
}

func decimal(value float64) string { return strconv.FormatFloat(value, 'f', -1, 64) }

func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z") }

// MonthOf returns the beginning of the month of a time, in UTC.
func MonthOf(t time.Time) time.Time {
	t = t.UTC()
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// CSV writes charges as rows with FOCUS columns.
type CSV struct {
	out *csv.Writer
	row []string
}

// NewCSV writes the header.
func NewCSV(out io.Writer) (*CSV, error) {
	w := &CSV{out: csv.NewWriter(out), row: make([]string, len(focusColumns))}
	for i := range focusColumns {
		w.row[i] = focusColumns[i].name
	}
	return w, w.out.Write(w.row)
}

// Write writes a row.
func (w *CSV) Write(c *Charge) error {
	for i := range focusColumns {
		w.row[i] = focusColumns[i].of(c)
	}
	return w.out.Write(w.row)
}

// Close writes the rows that are left.
func (w *CSV) Close() error {
	w.out.Flush()
	return w.out.Error()
}
