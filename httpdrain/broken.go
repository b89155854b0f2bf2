package httpdrain

import (
	"net/http"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
)

// writeTime is how long the last call waits for an event that is being written.
const writeTime = 20 * time.Millisecond

// follow follows the response if it is an event stream or JSON lines, which may be ended between two of them. x.mu is
// held.
func (x *exchange) follow(status int) {
	coding := x.own.Get("Content-Encoding")
	if x.hasLength() || coding != "" && !strings.EqualFold(coding, "identity") {
		return
	}
	isGET := x.r.Method == http.MethodGet
	media := eventstream.MediaOf([]byte(x.own.Get("Content-Type")), isGET)
	x.events = eventstream.Follow(media, eventstream.IsSubscription(isGET, status))
}

// hasLength reports whether the handler has set the length of the body.
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

// breakOff truncates a response that has begun, and returns the name of the ending for the report: "" if the client
// loses nothing. endBody does the rest in the handler's goroutine. breakOff must be called before the handler's context
// ends, or the handler might return and end the body as if it were complete.
func (x *exchange) breakOff() string {
	x.mu.Lock() // endBody waits for the ending
	defer x.mu.Unlock()
	x.broken.Store(true)
	ending := eventstream.Ending{Name: drain.EndingTruncated}
	if x.events != nil {
		for end := time.Now().Add(writeTime); ; time.Sleep(time.Millisecond) {
			if x.writing.TryLock() {
				x.events.SpreadRetries(time.Duration(x.c.p.retries.Load()))
				ending = x.events.Ending()
				x.writing.Unlock()
				break
			}
			if time.Now().After(end) { // the client does not read
				break
			}
		}
	}
	x.ending = ending
	if ending.Proper || ending.Last != nil { // a FIN may follow these
		x.c.delimited.Store(false)
	}
	return ending.Name
}

// endBody, deferred until the handler returns, ends a body that the last call has truncated.
func (x *exchange) endBody() {
	if !x.broken.Load() || x.hasLength() {
		return
	}
	if fault := recover(); fault != nil && fault != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
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
