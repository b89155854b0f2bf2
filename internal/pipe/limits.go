package pipe

import (
	"cmp"
	"time"
)

// Limits bound what a client may ask for. Zero values take the defaults, which
// are Envoy's where it has any. Who goes beyond one is answered, and counted in
// Stats.Refused; nothing of what he has sent is forwarded.
type Limits struct {
	MaxHead        int           // bytes of a message head; default 60 KiB; 431
	MaxFields      int           // fields of a request head; default 100; 431
	MaxRequestLine int           // bytes of a request line; default as MaxHead; 414
	HeadTimeout    time.Duration // for a request head that has begun; default 30 s; 408
	RequestTimeout time.Duration // for a whole request, its body included; default none; 408
}

const (
	// DefaultMaxHead is Envoy's max_request_headers_kb.
	DefaultMaxHead = 60 << 10
	// DefaultMaxFields is Envoy's max_headers_count.
	DefaultMaxFields = 100
	// DefaultHeadTimeout is what nginx and Apache give a request head, about.
	DefaultHeadTimeout = 30 * time.Second
)

func (l *Limits) setDefaults() {
	l.MaxHead = cmp.Or(l.MaxHead, DefaultMaxHead)
	l.MaxFields = cmp.Or(l.MaxFields, DefaultMaxFields)
	l.MaxRequestLine = min(cmp.Or(l.MaxRequestLine, l.MaxHead), l.MaxHead)
	l.HeadTimeout = cmp.Or(l.HeadTimeout, DefaultHeadTimeout)
}
