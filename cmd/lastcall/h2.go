package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// h2Flags are the limits for clients of HTTP/2.
type h2Flags struct{ http2.Limits }

func (f *h2Flags) each(do func(value *int, name, usage string)) {
	do(&f.MaxHeaderList, "h2-max-header-list", "`bytes` of a request's header list, with 32 added for each field")
	do(&f.MaxHeaderBlock, "h2-max-header-block", "`bytes` of a request's encoded header block")
	do(&f.MaxContinuations, "h2-max-continuations", "CONTINUATION `frames` in a header block (CVE-2024-27316)")
	do(&f.MaxControl, "h2-max-control", "unanswered PING and SETTINGS `frames` of a client")
	do(&f.MaxResets, "h2-max-resets", "`streams` after which a client that has reset more than half of them at once is disconnected (CVE-2023-44487)")
	do(&f.MaxEmptyFrames, "h2-max-empty-frames", "consecutive empty `frames`")
	do(&f.MaxWindowUpdates, "h2-max-window-updates", "WINDOW_UPDATE `frames` for each DATA frame of the app")
	do(&f.MaxPriorities, "h2-max-priorities", "PRIORITY `frames` for each stream")
	do(&f.MaxStreams, "h2-max-streams", "concurrent `streams` of a connection, even if the app allows more")
	do(&f.MaxExtraStreams, "h2-max-extra-streams", "concurrent `streams` of all connections, beyond 1,000 of each")
}

func (f *h2Flags) register(flags *pflag.FlagSet) {
	f.Limits = http2.DefaultLimits()
	f.each(func(value *int, name, usage string) {
		flags.IntVar(value, name, *value, usage)
	})
}

func (f *h2Flags) limits() (http2.Limits, error) {
	var err error
	f.each(func(value *int, name, _ string) {
		if *value == 0 || *value < -1 {
			err = usage(fmt.Errorf("--%s %d: must be 1 or more, or -1 for no limit", name, *value))
		}
	})
	return f.Limits, err
}
