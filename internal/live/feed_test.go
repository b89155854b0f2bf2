package live

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sideport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// agent is a state that a test changes.
type agent struct {
	mu     sync.Mutex
	now    State
	change chan struct{}
}

func (a *agent) set(s State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = s
	close(a.change)
	a.change = make(chan struct{})
}

func (a *agent) state() State { a.mu.Lock(); defer a.mu.Unlock(); return a.now }

func (a *agent) changed() <-chan struct{} { a.mu.Lock(); defer a.mu.Unlock(); return a.change }

// serve returns a feed on a real server with the limits of the side ports, and its URL.
func serve(t *testing.T, s State) (*agent, *Feed, string) {
	t.Helper()
	a := &agent{now: s, change: make(chan struct{})}
	f := New(a.state, a.changed)
	mux := http.NewServeMux()
	mux.HandleFunc(Path, f.Page)
	mux.HandleFunc(EventsPath, f.Events)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := sideport.New(mux, slog.New(slog.DiscardHandler))
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(sideport.Limit(ln)) }()
	t.Cleanup(func() { f.Close(); sideport.End(server); <-served })
	return a, f, "http://" + ln.Addr().String()
}

// open opens a stream.
func open(t *testing.T, url string) *bufio.Reader {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+EventsPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Body.Close() })
	if got := r.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("Content-Type %q", got)
	}
	return bufio.NewReader(r.Body)
}

// next is the next state of a stream, or false at its end.
func next(t *testing.T, stream *bufio.Reader) (s State, ok bool) {
	t.Helper()
	for {
		line, err := stream.ReadString('\n')
		if err != nil {
			return s, false
		}
		if data, isData := strings.CutPrefix(line, "data: "); isData {
			if err := json.Unmarshal([]byte(data), &s); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			return s, true
		}
	}
}

// until reads a stream up to a phase.
func until(t *testing.T, stream *bufio.Reader, phase string) State {
	t.Helper()
	for {
		s, ok := next(t, stream)
		if !ok {
			t.Fatalf("the stream ended before the phase %s", phase)
		}
		if s.Phase == phase {
			return s
		}
	}
}

func TestStreamFollowsTheAgent(t *testing.T) {
	a, f, url := serve(t, State{Phase: "serving"})
	stream := open(t, url)
	until(t, stream, "serving")
	limit := drain.Millis(25 * time.Second)
	a.set(State{Phase: "waiting", Drain: &Drain{Took: drain.Millis(3 * time.Second), Limit: &limit, Kill: drain.Millis(27 * time.Second)},
		Connections: []Connections{{"http/1.1", 1, 2}}, Holding: []drain.Conversation{{Peer: "10.0.0.1:4", Protocol: "http/1.1", Request: "GET /slow"}}})
	got := until(t, stream, "waiting")
	if got.Drain == nil || *got.Drain.Limit != limit || got.Holding[0].Request != "GET /slow" || got.Connections[0] != (Connections{"http/1.1", 1, 2}) {
		t.Errorf("got %+v", got)
	}
	until(t, stream, "waiting") // the next one without a change
	a.mu.Lock()
	a.now = State{Phase: "done"}
	a.mu.Unlock()
	f.Close()
	until(t, stream, "done") // the last word
	if _, more := next(t, stream); more {
		t.Error("the stream has not ended with the agent")
	}
}

func TestOneStreamTooManyEndsTheOldest(t *testing.T) {
	_, _, url := serve(t, State{Phase: "serving"})
	var streams []*bufio.Reader
	for range 9 {
		s := open(t, url)
		until(t, s, "serving")
		streams = append(streams, s)
	}
	for {
		if _, more := next(t, streams[0]); !more {
			break
		}
	}
	for _, s := range streams[1:] {
		until(t, s, "serving")
	}
}

// A client that does not read fills the buffers of both sides; the write to it waits. The end does not.
func TestStalledClientDoesNotDelayTheEnd(t *testing.T) {
	large := State{Phase: "serving", Host: strings.Repeat("x", 8<<20)}
	a := &agent{now: large, change: make(chan struct{})}
	f := New(a.state, a.changed)
	writes, ended := make(chan struct{}), make(chan struct{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(writes)
		f.Events(w, r)
		close(ended)
	})}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := io.WriteString(client, "GET "+EventsPath+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-writes
	f.Close()
	select {
	case <-ended:
	case <-time.After(sideport.WriteTime / 2): // far below the deadline of a write
		t.Fatal("the stream waits for its client after the end of the agent")
	}
}

func TestPage(t *testing.T) {
	_, _, url := serve(t, State{Phase: "serving", Host: "web-1"})
	for _, row := range []struct {
		method, path, media, contains string
		status                        int
	}{
		{"GET", Path, "text/html; charset=utf-8", "<!DOCTYPE html>", 200},
		{"GET", Path + "?format=json", "application/json", `"host":"web-1"`, 200},
		{"GET", Path + "?format=xml", "text/plain; charset=utf-8", "must be html or json", 400},
		{"POST", Path, "text/plain; charset=utf-8", "GET required", 405},
		{"POST", EventsPath, "text/plain; charset=utf-8", "GET required", 405},
		{"HEAD", EventsPath, "text/event-stream", "", 200},
	} {
		request, err := http.NewRequestWithContext(context.Background(), row.method, url+row.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || r.StatusCode != row.status || r.Header.Get("Content-Type") != row.media || !strings.Contains(string(body), row.contains) {
			t.Errorf("%s %s: %d %s %.80q %v", row.method, row.path, r.StatusCode, r.Header.Get("Content-Type"), body, err)
		}
	}
	for _, foreign := range []string{"http:", "https:", "src=", "@import", "innerHTML"} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page contains %q", foreign)
		}
	}
}
