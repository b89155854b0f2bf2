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
	request                   time.Duration
	connections               int
	headBytes, fields, line   int
}

func (f *limitsFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.head, "head-timeout", pipe.DefaultHeadTimeout, "how long a request's head may take from its first byte; then 408")
	flags.IntVar(&f.headBytes, "max-head-bytes", pipe.DefaultMaxHead, "how long the head of a message may be; then 431")
	flags.IntVar(&f.fields, "max-headers", pipe.DefaultMaxFields, "how many header fields a request may have; then 431")
	flags.IntVar(&f.line, "max-request-line", 0, "how many bytes a request line may have; then 414 (default --max-head-bytes)")
	flags.DurationVar(&f.request, "request-timeout", 0, "how long a request of HTTP/1 may take to come, its body included; then 408. 0 for as long as it takes")
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
	l.MaxHead, l.MaxFields, l.MaxRequestLine = f.headBytes, f.fields, f.line
	for _, n := range []struct {
		name         string
		value, least int
	}{{"max-head-bytes", f.headBytes, 1 << 10}, {"max-headers", f.fields, 1}, {"max-request-line", f.line, 0}} {
		if n.value < n.least || n.value > 1<<24 {
			return l, usage{fmt.Errorf("--%s %d: accepted are %d to %d", n.name, n.value, n.least, 1<<24)}
		}
	}
	if l.RequestTimeout = f.request; f.request < 0 {
		return l, usage{fmt.Errorf("--request-timeout %v: accepted are durations such as 1m, and 0 for no limit", f.request)}
	}
	if f.connections < 0 {
		return l, usage{fmt.Errorf("--max-connections %d: accepted are 1 and more, and 0 for no limit", f.connections)}
	}
	return l, nil
}
