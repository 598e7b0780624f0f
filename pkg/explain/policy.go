package explain

import (
	"slices"
	"time"
	"unicode/utf8"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/pkg/placement"
	"github.com/capacitorset/liqo-broker-vk/pkg/price"
	"github.com/capacitorset/liqo-broker-vk/pkg/scheduler/score"
)

// The limits of the CRD, which the API server checks when a policy is written.
const (
	maxIDs, maxIDLength = 1000, 63
	maxWeights          = 32
	maxWeight           = 1000
	maxTopologyKey      = 253
	minFailoverAfter    = 5 * time.Second
)

// PolicyError has the faults in the policy of a Hypothesis, by field.
type PolicyError struct{ Faults field.ErrorList }

func (e *PolicyError) Error() string { return e.Faults.ToAggregate().Error() }

// validate returns the faults for which the API server or the broker would reject a policy.
func (e *Explainer) validate(spec *v1alpha1.PlacementPolicySpec) field.ErrorList {
	at := field.NewPath("policy")
	var faults field.ErrorList
	if spec.Selection != nil {
		faults = append(faults, field.Forbidden(at.Child("selection"), "a policy with a selection does not apply to pods"))
	}
	faults = append(faults, validateIDs(spec.Consumers, at.Child("consumers"))...)
	faults = append(faults, validateIDs(spec.Providers, at.Child("providers"))...)
	options := metav1validation.LabelSelectorValidationOptions{}
	selects := metav1validation.ValidateLabelSelector
	faults = append(faults, selects(spec.NamespaceSelector, options, at.Child("namespaceSelector"))...)
	faults = append(faults, selects(spec.PodSelector, options, at.Child("podSelector"))...)
	if spec.Filter != "" {
		if _, err := e.policies.Programs.Filter(spec.Filter); err != nil {
			faults = append(faults, field.Invalid(at.Child("filter"), field.OmitValueType{}, err.Error()))
		}
	}
	if spec.Score != "" {
		if _, err := e.policies.Programs.Score(spec.Score); err != nil {
			faults = append(faults, field.Invalid(at.Child("score"), field.OmitValueType{}, err.Error()))
		}
	}
	faults = append(faults, validateWeights(spec.Weights, at.Child("weights"))...)
	if windows := score.UptimeWindows(); spec.UptimeWindow != "" && !slices.Contains(windows, spec.UptimeWindow) {
		faults = append(faults, field.NotSupported(at.Child("uptimeWindow"), spec.UptimeWindow, windows))
	}
	if spec.Spread != nil {
		if n := utf8.RuneCountInString(spec.Spread.TopologyKey); n == 0 || n > maxTopologyKey {
			faults = append(faults,
				field.Invalid(at.Child("spread", "topologyKey"), field.OmitValueType{}, "must have 1 to 253 characters"))
		}
	}
	if limit := spec.MaxHourlyCost; limit != nil {
		faults = append(faults, validateMoney(limit, at.Child("maxHourlyCost"))...)
	}
	modes := []v1alpha1.VolumesMode{v1alpha1.VolumesKeep, v1alpha1.VolumesRecreate}
	if spec.Volumes != "" && !slices.Contains(modes, spec.Volumes) {
		faults = append(faults, field.NotSupported(at.Child("volumes"), spec.Volumes, modes))
	}
	faults = append(faults, validateFailover(&spec.Failover, at.Child("failover"))...)
	if spec.PendingTimeout != nil && spec.PendingTimeout.Duration < 0 {
		faults = append(faults,
			field.Invalid(at.Child("pendingTimeout"), spec.PendingTimeout.Duration.String(), "must not be negative"))
	}
	if err := placement.ValidateMaxUnavailable(spec.MaxUnavailable); err != nil {
		faults = append(faults, field.Invalid(at.Child("maxUnavailable"), spec.MaxUnavailable.String(), err.Error()))
	}
	return faults
}

func validateMoney(money *v1alpha1.Money, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	if _, ok := price.Parse(string(money.Amount)); !ok {
		faults = append(faults, field.Invalid(at.Child("amount"), field.OmitValueType{}, "must be a decimal number, such as 0.042"))
	}
	if money.Currency != "" && !price.IsCurrency(money.Currency) {
		faults = append(faults, field.Invalid(at.Child("currency"), field.OmitValueType{}, "must be a code of ISO 4217, such as EUR"))
	}
	return faults
}

func validateIDs(ids []string, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(ids) > maxIDs {
		return append(faults, field.TooMany(at, len(ids), maxIDs))
	}
	seen := sets.New[string]()
	for i, id := range ids {
		switch {
		case id == "" || utf8.RuneCountInString(id) > maxIDLength:
			faults = append(faults, field.Invalid(at.Index(i), field.OmitValueType{}, "must have 1 to 63 characters"))
		case seen.Has(id):
			faults = append(faults, field.Duplicate(at.Index(i), id))
		}
		seen.Insert(id)
	}
	return faults
}

func validateWeights(weights []v1alpha1.Weight, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	if len(weights) > maxWeights {
		return append(faults, field.TooMany(at, len(weights), maxWeights))
	}
	known, seen := score.Plugins(), sets.New[string]()
	for i, w := range weights {
		switch {
		case !slices.Contains(known, w.Name):
			faults = append(faults, field.NotSupported(at.Index(i).Child("name"), w.Name, known))
		case seen.Has(w.Name):
			faults = append(faults, field.Duplicate(at.Index(i), w.Name))
		}
		if w.Weight < 0 || w.Weight > maxWeight {
			faults = append(faults, field.Invalid(at.Index(i).Child("weight"), w.Weight, "must be from 0 to 1000"))
		}
		seen.Insert(w.Name)
	}
	return faults
}

func validateFailover(f *v1alpha1.Failover, at *field.Path) field.ErrorList {
	var faults field.ErrorList
	modes := []v1alpha1.FailoverMode{v1alpha1.FailoverMove, v1alpha1.FailoverNever}
	if f.Mode != "" && !slices.Contains(modes, f.Mode) {
		faults = append(faults, field.NotSupported(at.Child("mode"), f.Mode, modes))
	}
	if f.After == nil {
		return faults
	}
	if f.After.Duration < minFailoverAfter {
		faults = append(faults, field.Invalid(at.Child("after"), f.After.Duration.String(), "must be at least 5s"))
	}
	if f.Mode == v1alpha1.FailoverNever {
		faults = append(faults, field.Forbidden(at.Child("after"), "must not be set with mode Never"))
	}
	return faults
}
