package httpdrain

import (
	"net/http"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
)

// writeTime is how long the last call waits for an event that is being written to a client.
const writeTime = 20 * time.Millisecond

// follow follows the answer when it is an event stream that may be ended before its end.
// x.mu is held.
func (x *exchange) follow(status int) {
	coding := x.own.Get("Content-Encoding")
	if eventstream.Is(x.own.Get("Content-Type")) && !x.hasLength() && (coding == "" || strings.EqualFold(coding, "identity")) {
		x.events = eventstream.New(x.r.Method == http.MethodGet && status == http.StatusOK)
	}
}

// hasLength reports whether the client sees by the body's length where it ends. It is the handler's.
func (x *exchange) hasLength() bool { return x.own.Get("Content-Length") != "" }

func (x *exchange) writeEvents(b []byte) (int, error) {
	x.writing.Lock()
	defer x.writing.Unlock()
	if x.broken.Load() {
		return 0, ErrLastCall
	}
	n, err := x.w.Write(b)
	x.events.Follow(b[:n])
	return n, err
}

// breakOff ends an answer that has begun where it stands, and returns how, for reports: "" when
// its client loses nothing. The rest is the handler's goroutine's, in endBody. It is called
// before the handler's context ends: a handler that returns because of that must not end
// the body properly.
func (x *exchange) breakOff() string {
	x.broken.Store(true)
	ending := eventstream.Ending{Name: eventstream.Truncated}
	if x.events != nil {
		for end := time.Now().Add(writeTime); ; time.Sleep(time.Millisecond) {
			if x.writing.TryLock() {
				ending = x.events.Ending()
				x.writing.Unlock()
				break
			}
			if time.Now().After(end) { // the client does not read
				break
			}
		}
	}
	x.mu.Lock()
	x.ending = ending
	x.mu.Unlock()
	return ending.Name
}

// hasLastWords reports whether an answer that is broken off ends with more than its connection.
func (x *exchange) hasLastWords() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ending.Proper || x.ending.Last != nil
}

// endBody is deferred to the handler's end. It ends a body that the last call has broken off.
func (x *exchange) endBody() {
	if !x.broken.Load() || x.hasLength() {
		return
	}
	if fault := recover(); fault != nil && fault != http.ErrAbortHandler {
		panic(fault)
	}
	x.mu.Lock()
	ending := x.ending
	x.mu.Unlock()
	if ending.Last != nil {
		_, _ = x.w.Write(ending.Last)
		_ = http.NewResponseController(x.w).Flush()
	}
	if !ending.Proper {
		panic(http.ErrAbortHandler)
	}
}
