package process

import (
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
)

// unknown is the value of a flag that is accepted and ignored.
type unknown struct{}

func (unknown) String() string   { return "" }
func (unknown) Set(string) error { return nil }
func (unknown) Type() string     { return "" }

// AllowUnknown makes a FlagSet accept and ignore the flags among args that it does not have. Liqo's controller managers
// pass such flags to virtual kubelets of an older version. The value of a flag may be the next argument: a virtual
// kubelet has no arguments other than flags.
func AllowUnknown(flags *pflag.FlagSet, args []string) {
	for i, arg := range args {
		name, is := strings.CutPrefix(arg, "--")
		name, _, hasValue := strings.Cut(name, "=")
		if !is || name == "" || name == "help" || flags.Lookup(name) != nil {
			continue
		}
		flag := flags.VarPF(unknown{}, name, "", "")
		flag.Hidden = true
		if !hasValue && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-")) {
			flag.NoOptDefVal = "true"
		}
	}
}

// Unknown returns the names of the flags that were given and ignored, sorted.
func Unknown(flags *pflag.FlagSet) (names []string) {
	flags.Visit(func(flag *pflag.Flag) {
		if flag.Value == (unknown{}) {
			names = append(names, flag.Name)
		}
	})
	return names
}

// CheckUnknown returns an error if a flag is unknown and strict is set, or if all given flags are unknown.
func CheckUnknown(flags *pflag.FlagSet, strict bool) error {
	names := Unknown(flags)
	if len(names) == 0 || (!strict && flags.NFlag() > len(names)) {
		return nil
	}
	return fmt.Errorf("unknown flag: --%s", strings.Join(names, ", --"))
}

// LogUnknown logs the names of the flags that are ignored. Their values may be secret.
func LogUnknown(log logr.Logger, names []string) {
	if len(names) > 0 {
		log.Info("Ignoring unknown flags; check for a release that supports the Liqo version that passes them, "+
			"or set --strict-flags=true to reject them", "flags", names)
	}
}

// UnknownMetric returns a gauge of the flags that are ignored.
func UnknownMetric(names []string) prometheus.Collector {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "liqo_broker_vk", Name: "unknown_flags",
		Help: "1 for each unknown flag that was passed and is ignored.",
	}, []string{"flag"})
	for _, name := range names {
		gauge.WithLabelValues(strings.ToValidUTF8(name, "?")).Set(1)
	}
	return gauge
}

// StrictUsage describes --strict-flags.
const StrictUsage = "Exit at startup if a flag is unknown, for example mistyped; " +
	"otherwise it is ignored, because later versions of Liqo pass more flags"
