package collector

import (
	"errors"
	"fmt"
	"regexp"
)

// part is a span on a pod's path, and the service that creates it (docs/tracing.md).
type part struct{ name, service string }

func parts() []part {
	return []part{
		{"decide", "liqo-broker"},
		{"patch pod", "liqo-broker"},
		{"forward pod", "liqo-virtual-kubelet"},
		{"start pod", "liqo-broker"},
	}
}

// traceparent matches a W3C Trace Context whose trace is sampled.
var traceparent = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-01$`)

// Way returns a function for Wait. It returns the missing spans of a pod's path until the pod runs. annotation is the
// pod's brokering.liqo.io/traceparent, the span that assigned the pod: all other spans are its children in the same
// trace. Failed spans do not count.
func Way(annotation string) func([]Span) error {
	return func(spans []Span) error {
		ids := traceparent.FindStringSubmatch(annotation)
		if ids == nil {
			return fmt.Errorf("%q is not the traceparent of a trace that is sent", annotation)
		}
		found := map[part]Span{}
		var root Span
		for _, span := range spans {
			switch {
			case span.Trace != ids[1] || span.Failed:
			case span.ID == ids[2]:
				root = span
			case span.Parent == ids[2]:
				found[part{span.Name, span.Service}] = span
			}
		}
		var missing []error
		if root.Name != "assign pod" || root.Service != "liqo-broker" || root.Parent != "" {
			missing = append(missing, fmt.Errorf("trace %s: no span assign pod of liqo-broker at its root", ids[1]))
		}
		before := root
		for _, p := range parts() {
			span, ok := found[p]
			switch {
			case !ok:
				missing = append(missing, fmt.Errorf("trace %s: no span %s of %s", ids[1], p.name, p.service))
			case span.End.Before(before.Start):
				missing = append(missing, fmt.Errorf("trace %s: %s is over before %s begins", ids[1], p.name, before.Name))
			default:
				before = span
			}
		}
		return errors.Join(missing...)
	}
}
