package live

import (
	"context"
	_ "embed" // of the page
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sideport"
)

// Paths of a feed.
const (
	Path       = "/live"        // the page; with ?format=json the state
	EventsPath = "/live/events" // the stream
)

const (
	interval = time.Second           // between two states, without a change of the phase
	retry    = "retry: 1000\n\n"     // milliseconds until a client connects again
	lastWord = 10 * time.Millisecond // for the last state of a stream
)

//go:embed page.html
var page string

// Feed serves the page and the states of an agent. Its methods may be called concurrently.
type Feed struct {
	state   func() State
	changed func() <-chan struct{}
	events  http.Handler
	ctx     context.Context
	end     context.CancelFunc
}

// New returns a feed. state is called for each state that is sent; the channel that changed returns is closed at the
// next change of the phase.
func New(state func() State, changed func() <-chan struct{}) *Feed {
	f := &Feed{state: state, changed: changed}
	f.ctx, f.end = context.WithCancel(context.Background())
	f.events = sideport.Streams(http.HandlerFunc(f.stream))
	return f
}

// Close ends all streams, each with a last state. It does not wait for them.
func (f *Feed) Close() { f.end() }

// Page serves Path to GET and HEAD.
func (f *Feed) Page(w http.ResponseWriter, r *http.Request) {
	if !reads(w, r) {
		return
	}
	switch format := r.URL.Query().Get("format"); format {
	case "json":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(f.state())
	case "", "html":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// The page never makes markup of a client's text. This is for the case of a mistake there.
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "+
			"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		_, _ = io.WriteString(w, page)
	default:
		http.Error(w, fmt.Sprintf("format %.20q: must be html or json", format), http.StatusBadRequest)
	}
}

// Events serves EventsPath to GET: the state now, at each change of the phase and once a second, until the client closes
// the connection or the agent ends.
func (f *Feed) Events(w http.ResponseWriter, r *http.Request) {
	if reads(w, r) {
		w.Header().Set("Content-Type", "text/event-stream")
		f.events.ServeHTTP(w, r)
	}
}

// reads refuses all methods that do not just read.
func reads(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "Method "+r.Method+" not allowed, GET required.", http.StatusMethodNotAllowed)
	return false
}

// stream is Events for a client that has a slot.
func (f *Feed) stream(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		return
	}
	control := http.NewResponseController(w)
	within := func(d time.Duration) { _ = control.SetWriteDeadline(time.Now().Add(d)) }
	defer context.AfterFunc(f.ctx, func() { within(lastWord) })() // interrupts a write to a client that does not read
	send := func() error {
		if within(sideport.WriteTime); f.ctx.Err() != nil {
			within(lastWord)
		}
		b, err := json.Marshal(f.state())
		if err == nil {
			_, err = w.Write(append(append([]byte("data: "), b...), "\n\n"...))
		}
		if err == nil {
			err = control.Flush()
		}
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	_, _ = io.WriteString(w, retry)
	for {
		changed, ends := f.changed(), f.ctx.Err() != nil // before the state, so that no change is missed
		if send() != nil || ends {
			return
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-f.ctx.Done():
		case <-r.Context().Done():
			return
		}
	}
}
