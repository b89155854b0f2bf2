//go:build linux

package observe

import (
	"errors"
	"time"
)

// Watch observes one network namespace. Its methods are safe for concurrent use, except Close.
type Watch struct{}

// Open opens a network namespace by its file, such as /proc/PID/ns/net; "" is the process's own, which needs no right.
// Another one needs CAP_SYS_ADMIN, and ptrace access to the process behind the path. An open Watch that has not started
// costs one file descriptor, and keeps the namespace alive after its last process.
func Open(path string, o Options) (*Watch, error) { return nil, errors.ErrUnsupported }

// Start enters the namespace and begins to collect: the sockets there are, and the kernel's reports. It returns within
// 5 s. Between Start and Begin the watch looks at the table once a second.
func (w *Watch) Start() error { return errors.ErrUnsupported }

// Begin is the moment of SIGTERM, or what the caller knows of it; by names it. It starts the watch if it has not
// started. Reports of up to a second before Begin count, because exit and reports race.
func (w *Watch) Begin(at time.Time, by string) error { return errors.ErrUnsupported }

// Listening are the watched ports that have a listener now.
func (w *Watch) Listening() []uint16 { return nil }

// Peek is the result if the observation ended now.
func (w *Watch) Peek() Termination { return Termination{} }

// End ends the observation and returns the result. at is when the app ended. It takes at most 1 s: that long it waits
// for the reports of connections that are being closed.
func (w *Watch) End(at time.Time, exit Exit) Termination { return Termination{} }

// Close ends everything; the Watch cannot be used again.
func (w *Watch) Close() error { return nil }
