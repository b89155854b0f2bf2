//go:build !linux

package observe

import (
	"errors"
	"time"
)

// Watch is available on Linux only.
type Watch struct{}

// Open fails: only Linux reports destroyed sockets.
func Open(string, Options) (*Watch, error) {
	return nil, errors.New("observe a network namespace: available on Linux only")
}

// Start is available on Linux only.
func (*Watch) Start() error { return errors.ErrUnsupported }

// Arm is available on Linux only.
func (*Watch) Arm() error { return errors.ErrUnsupported }

// Reacted is available on Linux only.
func (*Watch) Reacted(time.Time) time.Time { return time.Time{} }

// Begin is available on Linux only.
func (*Watch) Begin(time.Time, string) error { return errors.ErrUnsupported }

// End is available on Linux only.
func (*Watch) End(time.Time, Exit) Termination { return Termination{} }

// Peek is available on Linux only.
func (*Watch) Peek() Termination { return Termination{} }

// Listening is available on Linux only.
func (*Watch) Listening() []uint16 { return nil }

// Closing is available on Linux only.
func (*Watch) Closing() <-chan struct{} { return nil }

// Gone is available on Linux only.
func (*Watch) Gone() bool { return true }

// Close is available on Linux only.
func (*Watch) Close() error { return nil }
