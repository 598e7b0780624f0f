package flags

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"

	"github.com/capacitorset/liqo-broker-vk/pkg/tracing"
)

// Tracing are the flags of OpenTelemetry traces, which are off by default.
type Tracing struct {
	Endpoint string
	Insecure bool
	CAFile   string
	// Sampling is a flag of the broker only: it starts the traces.
	Sampling float64
}

// NewTracing returns the defaults.
func NewTracing() Tracing { return Tracing{Sampling: 1} }

// Install adds the flags.
func (o *Tracing) Install(f *pflag.FlagSet) {
	f.StringVar(&o.Endpoint, "tracing-endpoint", o.Endpoint,
		"HOST:PORT of an OpenTelemetry collector (OTLP over gRPC) that traces of pods are sent to; empty for none")
	f.BoolVar(&o.Insecure, "tracing-insecure", o.Insecure, "Connect to the OpenTelemetry collector in plaintext")
	f.StringVar(&o.CAFile, "tracing-ca-file", o.CAFile,
		"A file with the CA of the OpenTelemetry collector's certificate; by default the CAs of the system")
}

// InstallSampling adds the flag of the broker. Virtual kubelets continue the traces that the broker started.
func (o *Tracing) InstallSampling(f *pflag.FlagSet) {
	f.Float64Var(&o.Sampling, "tracing-sampling", o.Sampling,
		"The fraction of pod assignments that are traced, from 0 to 1")
}

// Validate adds the faults.
func (o *Tracing) Validate(f *Faults) {
	f.When(!(o.Sampling >= 0 && o.Sampling <= 1), fmt.Sprintf("--tracing-sampling=%v", o.Sampling), "use a number from 0 to 1")
	if o.Endpoint == "" {
		if o.Insecure || o.CAFile != "" {
			f.Add("--tracing-insecure or --tracing-ca-file without --tracing-endpoint", "set --tracing-endpoint as well")
		}
		return
	}
	f.Address("--tracing-endpoint", o.Endpoint)
	f.Exclusive("--tracing-insecure", o.Insecure, "--tracing-ca-file", o.CAFile != "")
}

// Traced runs a role and sends its spans until it ends. The tracer is nil without --tracing-endpoint.
func (o *Tracing) Traced(
	ctx context.Context, log logr.Logger, service, version, instance string, run func(trace.Tracer) error,
) error {
	spans, err := tracing.Start(ctx, tracing.Config{
		Log: log.WithName("tracing"), Endpoint: o.Endpoint, Insecure: o.Insecure, CAFile: o.CAFile, Sampling: o.Sampling,
		Service: service, Version: version, Instance: instance,
	})
	if err != nil {
		return err
	}
	defer spans.Close() //nolint:contextcheck // The remaining spans are sent after ctx has ended.
	return run(spans.Tracer())
}
