package main

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/trace"

	"github.com/capacitorset/liqo-broker-vk/pkg/tracing"
)

// tracingOptions are the flags of OpenTelemetry traces, which are off by default.
type tracingOptions struct {
	endpoint string
	insecure bool
	caFile   string
	// sampling is a flag of the broker only: it starts the traces.
	sampling float64
}

func newTracingOptions() tracingOptions { return tracingOptions{sampling: 1} }

func (o *tracingOptions) install(f *pflag.FlagSet) {
	f.StringVar(&o.endpoint, "tracing-endpoint", o.endpoint,
		"HOST:PORT of an OpenTelemetry collector (OTLP over gRPC) that traces of pods are sent to; empty for none")
	f.BoolVar(&o.insecure, "tracing-insecure", o.insecure, "Speak plaintext with the OpenTelemetry collector")
	f.StringVar(&o.caFile, "tracing-ca-file", o.caFile,
		"A file with the CA of the OpenTelemetry collector's certificate; by default those of the system")
}

// installSampling adds the flag of the broker. Virtual kubelets continue the traces that the broker started.
func (o *tracingOptions) installSampling(f *pflag.FlagSet) {
	f.Float64Var(&o.sampling, "tracing-sampling", o.sampling,
		"The share of the assignments of pods that are traced, from 0 to 1")
}

func (o *tracingOptions) validate(f *faults) {
	f.when(!(o.sampling >= 0 && o.sampling <= 1), fmt.Sprintf("--tracing-sampling=%v", o.sampling), "use a number from 0 to 1")
	if o.endpoint == "" {
		if o.insecure || o.caFile != "" {
			f.add("--tracing-insecure or --tracing-ca-file without --tracing-endpoint", "give --tracing-endpoint, too")
		}
		return
	}
	f.address("--tracing-endpoint", o.endpoint)
	f.exclusive("--tracing-insecure", o.insecure, "--tracing-ca-file", o.caFile != "")
}

// traced runs a role and sends its spans until it ends. The tracer is nil without --tracing-endpoint.
func (o *tracingOptions) traced(
	ctx context.Context, log logr.Logger, service, instance string, run func(trace.Tracer) error,
) error {
	spans, err := tracing.Start(ctx, tracing.Config{
		Log: log.WithName("tracing"), Endpoint: o.endpoint, Insecure: o.insecure, CAFile: o.caFile, Sampling: o.sampling,
		Service: service, Version: thisBuild().Version, Instance: instance,
	})
	if err != nil {
		return err
	}
	defer spans.Close() //nolint:contextcheck // The remaining spans are sent after ctx has ended.
	return run(spans.Tracer())
}
