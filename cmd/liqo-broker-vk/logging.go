package main

import (
	"io"

	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
	"github.com/virtual-kubelet/virtual-kubelet/log/klogv2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// debugVerbosity is what --log-level=debug sets --klog.v to: Liqo and client-go log the steps of a reconciliation
// there.
const debugVerbosity = "4"

// newLogger returns the logger that all lines go through. level and format are valid.
func newLogger(w io.Writer, level, format string) *zap.Logger {
	encoding := zap.NewProductionEncoderConfig()
	encoding.EncodeTime = zapcore.ISO8601TimeEncoder
	encoder := zapcore.NewJSONEncoder(encoding)
	if format == "console" {
		encoder = zapcore.NewConsoleEncoder(encoding)
	}
	threshold, _ := zapcore.ParseLevel(level)
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), threshold))
}

// bridgeLoggers sends what the libraries log to logger. This is the one place that sets their package-level loggers:
// klog (Liqo, client-go), virtual-kubelet's, which goes on through klog, and controller-runtime's.
func bridgeLoggers(logger *zap.Logger, level string, flags *pflag.FlagSet) error {
	log := zapr.NewLogger(logger)
	klog.SetLogger(log)
	ctrllog.SetLogger(log)
	vklog.L = klogv2.New(nil)
	if level == zapcore.DebugLevel.String() && !flags.Changed("klog.v") {
		return flags.Set("klog.v", debugVerbosity)
	}
	return nil
}
