package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cgroup"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// limitsFlags limit the resources of clients. docs/limits.md lists them.
type limitsFlags struct {
	head, connect, handshake  time.Duration
	idle, response, keepAlive time.Duration
	request                   time.Duration
	connections               int
	headBytes, fields         int
	memory                    int64
	flags                     *pflag.FlagSet
}

func (f *limitsFlags) register(flags *pflag.FlagSet) {
	f.flags = flags
	flags.Int64Var(&f.memory, "memory-limit", 0, "`bytes` that this process may use, from which the limits of connections and of unfinished requests follow (default the container's limit or GOMEMLIMIT)")
	flags.DurationVar(&f.head, "head-timeout", pipe.DefaultHeadTimeout,
		"time limit for a request's head, from its first byte; then 408")
	flags.IntVar(&f.headBytes, "max-head-bytes", pipe.DefaultMaxHead, "size limit of a message's head, in bytes; then 431")
	flags.IntVar(&f.fields, "max-headers", pipe.DefaultMaxFields, "limit of header fields in a request; then 431")
	flags.DurationVar(&f.request, "request-timeout", 0,
		"time limit for an HTTP/1 request to arrive, including its body; then 408. 0 for no limit")
	flags.DurationVar(&f.connect, "connect-timeout", pipe.DefaultDialTimeout,
		"time limit for a connection to the app; then 503")
	flags.DurationVar(&f.handshake, "tls-handshake-timeout", pipe.DefaultHandshakeTimeout,
		"time limit for a client's TLS handshake")
	flags.DurationVar(&f.idle, "idle-timeout", pipe.DefaultIdleTimeout,
		"how long an HTTP connection may be idle; 0 for no limit, or until the app closes it")
	flags.DurationVar(&f.response, "response-timeout", 0,
		"time limit from a request's head to the end of its response, with HTTP/1; then 504. 0 for no limit")
	flags.DurationVar(&f.keepAlive, "tcp-keepalive", pipe.DefaultKeepAlive,
		"send TCP keep-alive probes to a client that has been silent for this long; 0 for never")
	flags.IntVar(&f.connections, "max-connections", 0,
		"limit of connections at once for each inbound that does not set max-connections=N itself; then 503. 0 for no limit (default one for each 40 KiB of --memory-limit; beyond it the oldest that is unfinished or idle is ended)")
}

// leastMemory is about what the process takes without connections, bytes.
const leastMemory = 16 << 20

// limits converts the flags. In pipe.Limits 0 is the default, not unlimited.
func (f *limitsFlags) limits() (pipe.Limits, error) {
	l := pipe.Limits{MaxConnections: f.connections, Memory: f.memory}
	if l.Memory == 0 {
		l.Memory = cgroup.Memory()
	}
	if f.connections == 0 && f.flags.Changed("max-connections") {
		l.MaxConnections = pipe.NoLimit
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		to    *time.Duration
		off   bool // 0 is no limit
	}{
		{"head-timeout", f.head, &l.HeadTimeout, false},
		{"connect-timeout", f.connect, &l.DialTimeout, false},
		{"tls-handshake-timeout", f.handshake, &l.HandshakeTimeout, false},
		{"idle-timeout", f.idle, &l.IdleTimeout, true},
		{"response-timeout", f.response, &l.ResponseTimeout, true},
		{"request-timeout", f.request, &l.RequestTimeout, true},
		{"tcp-keepalive", f.keepAlive, &l.KeepAlive, true},
	} {
		switch *d.to = d.value; {
		case d.value < 0, d.value == 0 && !d.off:
			want := "a duration such as 10s"
			if d.off {
				want += ", or 0 for no limit"
			}
			return l, usage(fmt.Errorf("--%s %v: must be %s", d.name, d.value, want))
		case d.value == 0:
			*d.to = pipe.NoLimit
		}
	}
	l.MaxHead, l.MaxFields = f.headBytes, f.fields
	for _, n := range []struct {
		name         string
		value, least int
	}{{"max-head-bytes", f.headBytes, 1 << 10}, {"max-headers", f.fields, 1}} {
		if n.value < n.least || n.value > 1<<24 {
			return l, usage(fmt.Errorf("--%s %d: must be %d to %d", n.name, n.value, n.least, 1<<24))
		}
	}
	if f.memory < 0 || f.memory > 0 && f.memory < leastMemory {
		return l, usage(fmt.Errorf("--memory-limit %d: must be %d bytes or more", f.memory, leastMemory))
	}
	if f.connections < 0 {
		return l, usage(fmt.Errorf("--max-connections %d: must be 1 or more, or 0 for no limit", f.connections))
	}
	return l, nil
}

// limitMemory lets the garbage collector work harder before the container's limit is reached. The rest is for the
// kernel's part of connections and for the program itself.
func limitMemory(memory int64) {
	if memory > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memory / 8 * 5)
	}
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
			err = usage(fmt.Errorf("--%s %d: must be 1 or more, or -1 for no limit", name, *value))
		}
	})
	return f.Limits, err
}
