package flags

import (
	"strings"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
)

// Process are the flags of every role that runs as a server.
type Process struct {
	HealthProbeAddress  string
	LogLevel, LogFormat string
}

// NewProcess returns the defaults.
func NewProcess(healthProbeAddress string) Process {
	return Process{HealthProbeAddress: healthProbeAddress, LogLevel: "info", LogFormat: "json"}
}

// Install adds the flags.
func (o *Process) Install(f *pflag.FlagSet) {
	f.StringVar(&o.HealthProbeAddress, "health-probe-address", o.HealthProbeAddress,
		"The address that the probes (/livez and /readyz) are served on, 0 to disable")
	f.StringVar(&o.LogLevel, "log-level", o.LogLevel,
		"The minimum severity of logged messages: debug, info, warn or error; debug sets --klog.v to 4 unless that is set")
	f.StringVar(&o.LogFormat, "log-format", o.LogFormat, "The format of the logs: json or console")
}

// HideKlog hides the flags of klog from the help. They still work; --log-level is enough for most readers.
func HideKlog(f *pflag.FlagSet) {
	f.VisitAll(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, "klog.") {
			flag.Hidden = true
		}
	})
}

// Validate adds the faults.
func (o *Process) Validate(f *Faults) {
	f.ServedAddress("--health-probe-address", o.HealthProbeAddress)
	if _, err := zapcore.ParseLevel(o.LogLevel); err != nil {
		f.Add("--log-level="+o.LogLevel, "use one of debug, info, warn, error")
	}
	f.OneOf("--log-format", o.LogFormat, "json", "console")
}
