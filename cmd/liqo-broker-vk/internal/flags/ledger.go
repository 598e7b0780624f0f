package flags

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker/accounting"
)

// Ledger are the flags of the ledger.
type Ledger struct {
	file                string
	interval, retention time.Duration
}

// NewLedger returns the defaults: no ledger.
func NewLedger() Ledger {
	return Ledger{interval: 5 * time.Second, retention: 400 * 24 * time.Hour}
}

// Install adds the flags.
func (l *Ledger) Install(f *pflag.FlagSet) {
	f.StringVar(&l.file, "ledger", l.file,
		"The SQLite file in which the leader records which pods held which resources at which provider, and their prices; empty for none")
	f.DurationVar(&l.interval, "ledger-interval", l.interval, "How often the ledger is written")
	f.DurationVar(&l.retention, "ledger-retention", l.retention, "How long the ledger keeps pods that have ended; 0: indefinitely")
}

// Validate adds the faults.
func (l *Ledger) Validate(f *Faults) {
	f.When(l.file != "" && !filepath.IsAbs(l.file), "--ledger="+l.file, "give an absolute path")
	f.Positive("--ledger-interval", l.interval)
	f.When(l.retention < 0, fmt.Sprintf("--ledger-retention=%s", l.retention), "use a duration, or 0 to keep them indefinitely")
}

// Config returns the settings; nil if there is no ledger.
func (l *Ledger) Config() *accounting.Settings {
	if l.file == "" {
		return nil
	}
	return &accounting.Settings{File: l.file, Interval: l.interval, Retention: l.retention}
}
