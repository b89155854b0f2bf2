package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/until"
)

// untilFlags are those of wait --until.
type untilFlags struct {
	signals   []string
	stale     time.Duration
	heartbeat time.Duration
}

func (f *untilFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.signals, "until", nil, "wait until this `SIGNAL` reports that a worker is idle; may be repeated, then all must be idle: "+until.Syntax)
	flags.DurationVar(&f.stale, "until-stale", until.DefaultStale,
		"how long a signal of --until may fail before it no longer holds the drain; 0 for no limit")
	flags.DurationVar(&f.heartbeat, "until-heartbeat", 0,
		"how long a busy signal of --until may report the same (value, text, time of modification) before it no longer holds the drain; 0 for no limit")
}

// plane watches the signals; nil for none.
func (f *untilFlags) plane(log *slog.Logger) (drain.DataPlane, error) {
	if len(f.signals) == 0 {
		return nil, nil
	}
	o := until.Options{Stale: f.stale, Heartbeat: f.heartbeat, Log: log}
	for name, value := range map[string]time.Duration{"until-stale": f.stale, "until-heartbeat": f.heartbeat} {
		if value < 0 {
			return nil, usage(fmt.Errorf("--%s %v: must not be negative", name, value))
		}
	}
	for _, text := range f.signals {
		s, err := until.Parse(text)
		if err != nil {
			return nil, usage(fmt.Errorf("--until %w", err))
		}
		o.Signals = append(o.Signals, s)
	}
	return until.New(o), nil
}
