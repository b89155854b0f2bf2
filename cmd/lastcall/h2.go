package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// h2Flags are the limits for clients of HTTP/2.
type h2Flags struct{ http2.Limits }

func (f *h2Flags) each(do func(value *int, name, usage string)) {
	do(&f.MaxHeaderList, "h2-max-header-list", "HTTP/2: `bytes` of a request's header list, 32 more for each field")
	do(&f.MaxHeaderBlock, "h2-max-header-block", "HTTP/2: `bytes` of a request's header block as it is coded")
	do(&f.MaxContinuations, "h2-max-continuations", "HTTP/2: CONTINUATION `frames` of a header block (CVE-2024-27316)")
	do(&f.MaxControl, "h2-max-control", "HTTP/2: PING and SETTINGS `frames` of a client that wait for their answers")
	do(&f.MaxResets, "h2-max-resets", "HTTP/2: after how many `streams` a client is judged by those that it resets at once; more than half are too many (CVE-2023-44487)")
	do(&f.MaxEmptyFrames, "h2-max-empty-frames", "HTTP/2: empty `frames` one after another")
	do(&f.MaxWindowUpdates, "h2-max-window-updates", "HTTP/2: WINDOW_UPDATE `frames` for each DATA frame of the app")
	do(&f.MaxPriorities, "h2-max-priorities", "HTTP/2: PRIORITY `frames` for each stream")
	do(&f.MaxStreams, "h2-max-streams", "HTTP/2: `streams` of a connection at once, whatever the app allows")
	do(&f.MaxExtraStreams, "h2-max-extra-streams", "HTTP/2: `streams` of all connections at once beyond 1,000 of each connection")
}

func (f *h2Flags) register(flags *pflag.FlagSet) {
	f.Limits = http2.DefaultLimits()
	f.each(func(value *int, name, usage string) {
		flags.IntVar(value, name, *value, usage+"; -1 for no limit")
	})
}

func (f *h2Flags) limits() (http2.Limits, error) {
	var err error
	f.each(func(value *int, name, _ string) {
		if *value == 0 || *value < -1 {
			err = usage{fmt.Errorf("--%s %d: must be 1 or more, or -1 for no limit", name, *value)}
		}
	})
	return f.Limits, err
}
