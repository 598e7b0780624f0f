package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/log/klogv2"
	"go.opentelemetry.io/otel"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// debugVerbosity is what --log-level=debug sets --klog.v to: Liqo and client-go log the steps of a reconciliation
// there.
const debugVerbosity = 4

// setUpLogging makes the logger that all lines go through, and sends there what the libraries log. This is the one
// place that sets their package-level loggers: klog (Liqo, client-go), virtual-kubelet's, which goes on through klog,
// controller-runtime's and OpenTelemetry's. level and format are valid.
func setUpLogging(w io.Writer, level, format string, flags *pflag.FlagSet) (logr.Logger, error) {
	threshold, err := zapcore.ParseLevel(level)
	if err != nil {
		return logr.Logger{}, err
	}
	verbosity := flags.Lookup("klog.v")
	if threshold == zapcore.DebugLevel && !verbosity.Changed {
		if err := verbosity.Value.Set(strconv.Itoa(debugVerbosity)); err != nil {
			return logr.Logger{}, err
		}
	}
	if threshold <= zapcore.InfoLevel {
		// A line of verbosity N arrives as zap's level -N; klog has dropped those above --klog.v.
		detail, err := strconv.Atoi(verbosity.Value.String())
		if err != nil {
			return logr.Logger{}, fmt.Errorf("--klog.v: %w", err)
		}
		threshold = zapcore.Level(-min(detail, 127))
	}

	log := zapr.NewLogger(zap.New(zapcore.NewCore(newEncoder(format), zapcore.Lock(zapcore.AddSync(w)), threshold)))
	klog.SetLogger(log)
	ctrllog.SetLogger(log)
	vklog.L = klogv2.New(nil)
	otel.SetLogger(log)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Error(err, "OpenTelemetry has a problem") }))
	return log, nil
}

func newEncoder(format string) zapcore.Encoder {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.ISO8601TimeEncoder
	encoding.EncodeLevel = func(level zapcore.Level, enc zapcore.PrimitiveArrayEncoder) {
		zapcore.LowercaseLevelEncoder(max(level, zapcore.DebugLevel), enc)
	}
	if format == "console" {
		return zapcore.NewConsoleEncoder(encoding)
	}
	return zapcore.NewJSONEncoder(encoding)
}
