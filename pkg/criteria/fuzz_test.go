package criteria

import (
	"errors"
	"testing"
)

// FuzzExpressions compiles and evaluates anything, and expects an *Error at worst.
func FuzzExpressions(f *testing.F) {
	for _, expression := range hostile() {
		f.Add(expression)
	}
	for _, expression := range []string{
		"provider.attributes['region'] == 'eu' && provider.resources.free['cpu'] > 2.0 * pod.requests[?'cpu'].orValue(0.0)",
		"has(provider.kpis.uptime24h) ? 100.0 * provider.kpis.uptime24h : 50.0",
		"provider.labels.exists(k, v, k.matches('^a+$') && v.find('[0-9]+') != '') || quantity('1Gi').isLessThan(quantity('2Gi'))",
		"semver(provider.labels.version).isGreaterThan(semver('1.34.0')) && cidr('10.0.0.0/8').containsIP(ip('10.0.0.1'))",
		"[1, 2, 3].map(x, x * 2).filter(x, x > 2).sum() == 10 && 'a,b'.split(',').join('') in ['ab']",
		"{'a': 1, 'b': 2}.exists_one(k, k == 'a') ? optional.of('x').value() == 'x' : !isQuantity(pod.name)",
	} {
		f.Add(expression)
	}
	v := variables()
	f.Fuzz(func(t *testing.T, expression string) {
		for _, isScore := range []bool{false, true} {
			p, err := compile(expression, isScore)
			if err == nil {
				v.Renew()
				if _, err = p.eval(v); err != nil {
					err = p.fail(err)
				}
			}
			if fault := (&Error{}); err != nil && !errors.As(err, &fault) {
				t.Fatal(err)
			}
		}
	})
}
