package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// limitsFlags bound what clients of the pipe can take. docs/limits.md lists them.
type limitsFlags struct {
	head, connect, handshake  time.Duration
	idle, response, keepAlive time.Duration
	connections               int
}

func (f *limitsFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.head, "head-timeout", pipe.DefaultHeadTimeout, "how long a request's head may take from its first byte; then 408")
	flags.DurationVar(&f.connect, "connect-timeout", pipe.DefaultDialTimeout, "how long a connection to the app may take; then 503")
	flags.DurationVar(&f.handshake, "tls-handshake-timeout", pipe.DefaultHandshakeTimeout, "how long a client's TLS handshake may take")
	flags.DurationVar(&f.idle, "idle-timeout", pipe.DefaultIdleTimeout, "how long a connection of HTTP may be idle; 0 for ever, or until the app closes it")
	flags.DurationVar(&f.response, "response-timeout", 0, "how long it may take from a request's head to the end of its response, with HTTP/1; then 504. 0 for as long as it takes")
	flags.DurationVar(&f.keepAlive, "tcp-keepalive", pipe.DefaultKeepAlive, "after how long a silent client's kernel is asked whether it is there; 0 for never")
	flags.IntVar(&f.connections, "max-connections", 0, "how many connections an inbound has at once, where it does not say max-connections=N itself; then 503. 0 for no limit")
}

// limits are the pipe's, in whose words 0 is a default.
func (f *limitsFlags) limits() (pipe.Limits, error) {
	l := pipe.Limits{MaxConnections: f.connections}
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
		{"tcp-keepalive", f.keepAlive, &l.KeepAlive, true},
	} {
		switch *d.to = d.value; {
		case d.value < 0, d.value == 0 && !d.off:
			accepted := "durations such as 10s"
			if d.off {
				accepted += ", and 0 for no limit"
			}
			return l, usage{fmt.Errorf("--%s %v: accepted are %s", d.name, d.value, accepted)}
		case d.value == 0:
			*d.to = pipe.NoLimit
		}
	}
	if f.connections < 0 {
		return l, usage{fmt.Errorf("--max-connections %d: accepted are 1 and more, and 0 for no limit", f.connections)}
	}
	return l, nil
}
