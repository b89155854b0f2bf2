package main

import (
	"math"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// limitsFlags limit the resources of clients. docs/limits.md lists them.
type limitsFlags struct {
	pipe.Limits
	flags *pflag.FlagSet
}

// times are the flags with a time limit; for those that have optional, 0 is no limit.
func (f *limitsFlags) times(do func(to *time.Duration, optional bool, name string, preset time.Duration, text string)) {
	do(&f.HeadTimeout, false, "head-timeout", pipe.DefaultHeadTimeout,
		"time limit for a request's head, from its first byte; then 408")
	do(&f.RequestTimeout, true, "request-timeout", 0,
		"time limit for an HTTP/1 request to arrive, including its body; then 408. 0 for no limit")
	do(&f.DialTimeout, false, "connect-timeout", pipe.DefaultDialTimeout,
		"time limit for a connection to the app; then 503")
	do(&f.HandshakeTimeout, false, "tls-handshake-timeout", pipe.DefaultHandshakeTimeout,
		"time limit for a client's TLS handshake")
	do(&f.IdleTimeout, true, "idle-timeout", pipe.DefaultIdleTimeout,
		"how long an HTTP connection may be idle; 0 for no limit, or until the app closes it")
	do(&f.ResponseTimeout, true, "response-timeout", 0,
		"time limit from a request's head to the end of its response, with HTTP/1; then 504. 0 for no limit")
	do(&f.KeepAlive, true, "tcp-keepalive", pipe.DefaultKeepAlive,
		"send TCP keep-alive probes to a client that has been silent for this long; 0 for never")
}

func (f *limitsFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	flags.Int64Var(&f.Memory, "memory-limit", 0,
		"`bytes` that this process may use, from which the limits of connections and of "+
			"unfinished requests follow (default the container's limit or GOMEMLIMIT)")
	flags.IntVar(&f.MaxHead, "max-head-bytes", pipe.DefaultMaxHead, "size limit of a request's head, in bytes; then 431")
	flags.IntVar(&f.MaxFields, "max-headers", pipe.DefaultMaxFields, "limit of header fields in a request; then 431")
	f.times(func(to *time.Duration, _ bool, name string, preset time.Duration, usage string) {
		flags.DurationVar(to, name, preset, usage)
	})
	flags.IntVar(&f.MaxConnections, "max-connections", 0,
		"limit of connections at once for each inbound that does not set max-connections=N itself; then 503. "+
			"0 for no limit (default one for each 48 KiB that --memory-limit leaves for connections; "+
			"beyond it the oldest that is unfinished or idle is ended)")
}

// leastMemory is about the memory of the process without connections, bytes.
const leastMemory = 16 << 20

// limits checks the flags. In pipe.Limits 0 is the default, not unlimited.
func (f *limitsFlags) limits() (_ pipe.Limits, err error) {
	f.times(func(to *time.Duration, optional bool, name string, _ time.Duration, _ string) {
		switch {
		case *to > 0:
		case *to == 0 && optional:
			*to = pipe.NoLimit
		case optional:
			err = usagef("--%s %v: must be a duration such as 10s, or 0 for no limit", name, *to)
		default:
			err = usagef("--%s %v: must be a duration such as 10s", name, *to)
		}
	})
	for _, n := range []struct {
		name         string
		value, least int
	}{{"max-head-bytes", f.MaxHead, 1 << 10}, {"max-headers", f.MaxFields, 1}} {
		if n.value < n.least || n.value > 1<<24 {
			err = usagef("--%s %d: must be %d to %d", n.name, n.value, n.least, 1<<24)
		}
	}
	switch {
	case f.Memory < 0 || f.Memory > 0 && f.Memory < leastMemory:
		err = usagef("--memory-limit %d: must be %d bytes or more", f.Memory, leastMemory)
	case f.Memory == 0:
		f.Memory = memoryLimit()
	}
	switch {
	case f.MaxConnections < 0:
		err = usagef("--max-connections %d: must be 1 or more, or 0 for no limit", f.MaxConnections)
	case f.MaxConnections == 0 && f.flags.Changed("max-connections"):
		f.MaxConnections = pipe.NoLimit
	}
	return f.Limits, err
}

// memoryLimit is the lowest limit of the process's control groups, or GOMEMLIMIT if that is lower, bytes; 0 if there is
// none.
func memoryLimit() int64 {
	limit, err := memlimit.FromCgroup()
	if err != nil || limit > math.MaxInt64 {
		limit = math.MaxInt64
	}
	if lowest := min(int64(limit), debug.SetMemoryLimit(-1)); lowest < math.MaxInt64 {
		return lowest
	}
	return 0
}

// h2Flags are the limits for clients of HTTP/2.
type h2Flags struct{ http2.Limits }

func (f *h2Flags) each(do func(value *int, name, usage string)) {
	do(&f.MaxHeaderList, "h2-max-header-list", "`bytes` of a request's header list, with 32 added for each field")
	do(&f.MaxResets, "h2-max-resets", "`streams` after which a client that has reset more than half of them at once is disconnected (CVE-2023-44487)")
	do(&f.MaxStreams, "h2-max-streams", "concurrent `streams` of a connection, even if the app allows more")
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
			err = usagef("--%s %d: must be 1 or more, or -1 for no limit", name, *value)
		}
	})
	return f.Limits, err
}
