package accounting

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/ledger"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
)

const (
	// budgetInterval is how often the costs of this month are compared with the budgets.
	budgetInterval = 30 * time.Second
	// maxUnknown is how long new pods wait for the first comparison: a ledger that cannot be read holds back none.
	maxUnknown = time.Minute
	// nearlyUsed is the share of a budget from which an event warns.
	nearlyUsed = 0.8
)

// stage is how far a budget is used.
type stage int

const (
	within stage = iota
	nearly
	exceeded
)

// OverBudget returns why new pods of a consumer wait: its pods have cost as much as its budget of this month allows, or
// that is not known yet. It returns "" if they need not wait.
func (a *Accountant) OverBudget(ctx context.Context, consumer string) string {
	a.mu.Lock()
	now := a.Clock.Now()
	compared, current := a.overBudget != nil, a.month.Equal(ledger.MonthOf(now))
	why, waited := a.overBudget[consumer], !a.began.IsZero() && now.Sub(a.began) > maxUnknown
	a.mu.Unlock()
	switch {
	case compared && current:
		return why
	case compared || waited || consumer == "":
		return ""
	}
	var of v1alpha1.ConsumerCluster
	if err := a.Client.Get(ctx, client.ObjectKey{Name: consumer}, &of); err != nil || of.Spec.Budget == nil {
		return ""
	}
	return "the ledger is being read, for the budget of consumer " + consumer
}

// checkBudgets compares the costs of this month with the budgets of all consumers.
func (a *Accountant) checkBudgets(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var consumers v1alpha1.ConsumerClusterList
	if err := a.Client.List(ctx, &consumers); err != nil {
		return err
	}
	budgets := map[string]*v1alpha1.ConsumerCluster{}
	for i := range consumers.Items {
		if consumers.Items[i].Spec.Budget != nil {
			budgets[consumers.Items[i].Name] = &consumers.Items[i]
		}
	}
	over := map[string]string{}
	now := a.Clock.Now()
	month := ledger.MonthOf(now)
	if len(budgets) > 0 {
		sum := ledger.NewSum(ledger.ByConsumer)
		err := a.store.Charges(ctx, &ledger.Query{From: month, To: now}, func(c *ledger.Charge) error {
			if budgets[c.Consumer] != nil {
				sum.Add(c)
			}
			return nil
		})
		if err != nil {
			return err
		}
		costs := map[string]float64{}
		for _, row := range sum.Rows() {
			costs[row.Key[0]] = row.Cost[budgets[row.Key[0]].Spec.Budget.Currency]
		}
		for name, of := range budgets {
			if why := a.compare(of, costs[name], month); why != "" {
				over[name] = why
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.overBudget, a.month = over, month
	return nil
}

// compare returns why new pods wait, "" if they need not, and warns the administrator once for each stage and month.
func (a *Accountant) compare(of *v1alpha1.ConsumerCluster, cost float64, month time.Time) string {
	limit, ok := price.Parse(string(of.Spec.Budget.Amount))
	if !ok {
		return ""
	}
	message := fmt.Sprintf("pods of consumer %s have cost %s in %s, of a budget of %s", of.Name,
		price.Amount{Value: cost}, month.Format("2006-01"), price.Amount{Value: limit, Currency: of.Spec.Budget.Currency})
	reached, why := within, ""
	switch {
	case cost >= limit:
		reached = exceeded
		// Without the cost, which changes all the time: it is the condition of each waiting pod.
		why = fmt.Sprintf("the budget of consumer %s for %s is used: %s", of.Name, month.Format("2006-01"),
			price.Amount{Value: limit, Currency: of.Spec.Budget.Currency})
	case cost >= nearlyUsed*limit:
		reached = nearly
	}
	key := fmt.Sprintf("%s %s %s", of.Name, month, of.Spec.Budget.Amount)
	if reached > a.warned[key] {
		maps.DeleteFunc(a.warned, func(k string, _ stage) bool { return k != key && len(a.warned) > maxWarned })
		a.warned[key] = reached
		reason := map[stage]string{nearly: "BudgetNearlyUsed", exceeded: "BudgetUsed"}[reached]
		a.Events.Event(of, corev1.EventTypeWarning, reason, message)
	}
	return why
}

// maxWarned is the number of warnings that are remembered, so that they are not repeated.
const maxWarned = 10_000
