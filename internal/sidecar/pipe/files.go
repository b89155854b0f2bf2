package pipe

import (
	"errors"
	"math"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// A client whose connection is accepted with the last descriptor could not be connected to the app. While descriptors
// are few, a listener therefore reserves one for the app before it accepts a client; until then clients wait in the
// kernel's queue. A connection that has returned its descriptor, or has none, waits for one.

const (
	// filesEach is how many descriptors a connection takes at most: two sockets, and a pipe to move a body within the
	// kernel. filesElse is about how many the rest of the process takes.
	filesEach = 4
	filesElse = 64

	// filesPause is between attempts of a connection that has been accepted to get one.
	filesPause = 10 * time.Millisecond
)

func fileLimit() int64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(limit.Cur)
}

// isOutOfFiles reports whether an error is the lack of a descriptor, which is remembered.
func (p *Pipe) isOutOfFiles(err error) bool {
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
		return false
	}
	p.filesShort.Store(true)
	return true
}

func (p *Pipe) freeFiles() {
	if p.filesShort.Load() {
		select {
		case p.filesFreed <- struct{}{}:
		default:
		}
	}
}

// awaitFiles waits until descriptors may be free, for pause at most.
func (p *Pipe) awaitFiles(pause time.Duration) {
	select {
	case <-p.filesFreed:
	case <-time.After(pause):
	case <-p.ctx.Done():
	}
}

// reserve waits, if descriptors are few, until there is one for the connection to the app of the next client. Only the
// accept loop calls it. A listener that stops accepts the connections in its queue without one.
func (l *listener) reserve() {
	p := l.p
	isShort := func() bool { return p.filesShort.Load() || p.existing.Load()*filesEach+filesElse >= p.files }
	for pause := minAcceptPause; l.spare == nil && isShort() && !p.stops.Load(); {
		spare, err := tcp.Reserve(l.App)
		if err == nil {
			l.spare = spare
			return
		}
		if !p.isOutOfFiles(err) {
			return
		}
		l.pauseAfter(err, &pause)
	}
}

// pauseAfter counts and logs an error because of which clients wait in the kernel's queue, and waits for a pause, the
// next of which is longer.
func (l *listener) pauseAfter(err error, pause *time.Duration) {
	l.stats.AcceptErrors.Add(1)
	l.p.warn("accept failed; retrying", "listener", l.Listen, "error", err, "hint", listen.AcceptHint(err))
	l.p.awaitFiles(*pause)
	*pause = min(2**pause, maxAcceptPause)
}
