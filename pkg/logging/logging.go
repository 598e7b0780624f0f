// Package logging has the logger of the process.
package logging

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

// debugVerbosity is --klog.v with --log-level=debug. Liqo and client-go log the steps of a reconciliation at this
// level.
const debugVerbosity = 4

// SetUp returns the logger of the process and sets it in the libraries. It is the only place that sets their
// package-level loggers: klog's (Liqo, client-go), virtual-kubelet's, which logs to klog, controller-runtime's and
// OpenTelemetry's. level and format must be valid.
func SetUp(w io.Writer, level, format string, flags *pflag.FlagSet) (logr.Logger, error) {
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
		// A line of verbosity N has zap's level -N; klog drops those above --klog.v.
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
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Error(err, "OpenTelemetry failed") }))
	return log, nil
}

func newEncoder(format string) zapcore.Encoder {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.ISO8601TimeEncoder
	encoding.EncodeLevel = func(level zapcore.Level, enc zapcore.PrimitiveArrayEncoder) {
		zapcore.LowercaseLevelEncoder(max(level, zapcore.DebugLevel), enc)
	}
	if format == "console" {
		return printable{zapcore.NewConsoleEncoder(encoding), true}
	}
	return printable{zapcore.NewJSONEncoder(encoding), false}
}
