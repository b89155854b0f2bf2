package conformance

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// feed is the output of the apps of both pods: numbered events, the same to all clients, from any number on.
type feed struct {
	mu   sync.Mutex
	last int
	next chan struct{} // closed with the next event
}

func (f *feed) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	close(f.next)
	f.next = make(chan struct{})
}

// follow calls send for each event after one, until it fails or ctx ends.
func (f *feed) follow(ctx context.Context, after int, send func(n int) error) {
	for {
		f.mu.Lock()
		last, next := f.last, f.next
		f.mu.Unlock()
		for ; after < last; after++ {
			if send(after+1) != nil {
				return
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ws" {
		socket, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer socket.CloseNow()
		after, _ := strconv.Atoi(r.URL.Query().Get("after"))
		f.follow(socket.CloseRead(r.Context()), after, func(n int) error {
			return socket.Write(r.Context(), websocket.MessageText, []byte(strconv.Itoa(n)))
		})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	after, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
	_ = http.NewResponseController(w).Flush()
	f.follow(r.Context(), after, func(n int) error {
		_, _ = fmt.Fprintf(w, "id: %d\ndata: %d\n\n", n, n)
		return http.NewResponseController(w).Flush()
	})
}

// herd are clients that reconnect, half of them EventSource-like, half WebSockets without a pause before they
// reconnect.
type herd struct {
	t         *testing.T
	old       string
	young     string
	leaves    atomic.Bool // new connections go to the young pod
	mu        sync.Mutex
	came      []time.Time // connections to the young pod
	faults    []string
	connected atomic.Int64 // to the old pod
	resumed   atomic.Int64 // have had two events of the young pod
	stop      chan struct{}
}

func (h *herd) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf(format, args...))
}

// member is a client.
type member struct {
	h        *herd
	last     int
	young    bool
	since    int // events of the present pod
	hasEvent bool
	retry    time.Duration
}

func (m *member) event(n int) {
	if m.hasEvent && n != m.last+1 {
		m.h.fault("event %d follows %d", n, m.last)
	}
	m.last, m.hasEvent = n, true
	if m.since++; m.young && m.since == 2 {
		m.h.resumed.Add(1)
	}
	if !m.young && m.since == 1 {
		m.h.connected.Add(1)
	}
}

func (m *member) dial() (net.Conn, error) {
	addr := m.h.old
	if m.young = m.h.leaves.Load(); m.young {
		addr = m.h.young
	}
	m.since = 0
	conn, err := net.Dial("tcp", addr)
	if err == nil && m.young {
		m.h.mu.Lock()
		m.h.came = append(m.h.came, time.Now())
		m.h.mu.Unlock()
	}
	if err == nil {
		go func() { <-m.h.stop; _ = conn.Close() }()
	}
	return conn, err
}

// events is a subscription until its end, as EventSource's.
func (m *member) events() error {
	conn, err := m.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	id := ""
	if m.hasEvent {
		id = fmt.Sprintf("Last-Event-ID: %d\r\n", m.last)
	}
	if _, err := fmt.Fprintf(conn, "GET /events HTTP/1.1\r\nHost: app\r\n%s\r\n", id); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(make([]byte, 256), 4096)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		n, _ := strconv.Atoi(value)
		switch name {
		case "data":
			m.event(n)
		case "retry":
			m.retry = time.Duration(n) * time.Millisecond
		}
	}
	return lines.Err()
}

// socket is a WebSocket until its close frame.
func (m *member) socket() error {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return m.dial() }, ReadBufferSize: 512, WriteBufferSize: 512,
	}}
	socket, _, err := websocket.Dial(context.Background(), fmt.Sprintf("ws://app/ws?after=%d", m.last), &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		return err
	}
	defer socket.CloseNow()
	for {
		_, text, err := socket.Read(context.Background())
		if err != nil {
			if websocket.CloseStatus(err) == websocket.StatusServiceRestart { // LASTCALL_WEBSOCKET_CLOSE
				return nil
			}
			return err
		}
		n, _ := strconv.Atoi(string(text))
		m.event(n)
	}
}

func (m *member) run(session func() error) {
	for {
		err := session()
		select {
		case <-m.h.stop:
			return
		default:
		}
		if err != nil {
			m.h.fault("%v", err)
			return
		}
		select {
		case <-time.After(m.retry):
		case <-m.h.stop:
			return
		}
	}
}

// most is the largest number of times within 100 ms.
func most(times []time.Time) (n int) {
	slices.SortFunc(times, time.Time.Compare)
	from := 0
	for i, at := range times {
		for at.Sub(times[from]) > 100*time.Millisecond {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}

// overflows is how many connections of this network namespace found an accept queue full.
func overflows(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/net/netstat")
	must.Do(t, err)
	lines := strings.Split(string(text), "\n")
	names, values := strings.Fields(lines[0]), strings.Fields(lines[1])
	n, err := strconv.Atoi(values[slices.Index(names, "ListenOverflows")])
	must.Do(t, err)
	return n
}

// Thousands of clients that reconnect come to the successor of their pod one after another, and miss no event. HERD is
// the number of clients, HERD_AGENT another program, HERD_WAYS "wait" or "close" alone.
func TestHerd(t *testing.T) {
	clients := 400
	if n, err := strconv.Atoi(os.Getenv("HERD")); err == nil {
		clients = n
	}
	agent := os.Getenv("HERD_AGENT")
	if agent == "" {
		agent = buildAgent(t)
	}
	for _, way := range []string{"wait", "close"} {
		if only := os.Getenv("HERD_WAYS"); only != "" && only != way {
			continue
		}
		t.Run(way, func(t *testing.T) { stampede(t, agent, way, clients) })
	}
}

func stampede(t *testing.T, agent, way string, clients int) {
	f := &feed{next: make(chan struct{})}
	server := &http.Server{Handler: f}
	ln := nettest.Listen(t, "127.0.0.1:0")
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	publishing := time.NewTicker(2 * time.Second)
	go func() {
		for {
			select {
			case <-publishing.C:
				f.publish()
			case <-served:
				return
			}
		}
	}()
	f.publish()
	secret, authority := certificatetest.NewSecret(t), certificatetest.New(t)
	secret.Write(authority.Sign("app.test", 0), authority.PEM())
	grace := map[string]int{"close": 30, "wait": 12}[way] // the latter waits for the last call, whose margin is the same
	more := []string{"LASTCALL_WEBSOCKET=" + way, "LASTCALL_EVENT_STREAMS=" + way, "LASTCALL_WEBSOCKET_CLOSE=1012",
		fmt.Sprint("TERMINATION_GRACE_PERIOD_SECONDS=", grace)}
	old := startPod(t, agent, ln.Addr(), secret, more...)
	young := startPod(t, agent, ln.Addr(), secret, more...)
	h := &herd{t: t, old: old.plain, young: young.plain, stop: make(chan struct{})}
	before := overflows(t)
	var all sync.WaitGroup
	for i := range clients {
		m := &member{h: h}
		session := m.events
		if i%2 == 0 {
			session = m.socket
		}
		all.Go(func() { m.run(session) })
		if i%50 == 49 {
			polltest.Eventually(t, "clients have connected", func() bool { return h.connected.Load() > int64(i-200) })
		}
	}
	defer all.Wait()
	defer close(h.stop)
	polltest.Eventually(t, "every client has an event", func() bool { return h.connected.Load() == int64(clients) })
	began := time.Now()
	must.Do(t, old.command.Process.Signal(syscall.SIGTERM))
	lag := time.AfterFunc(endpointLag, func() { h.leaves.Store(true) })
	defer lag.Stop()
	polltest.Eventually(t, "every client has resumed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.resumed.Load() == int64(clients) || len(h.faults) > 0
	})
	<-old.ended
	took := time.Since(began)
	r, err := old.report()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.faults) > 0 || err != nil || len(r.Faults) > 0 {
		t.Errorf("%d faults, such as %q; the pod's report: %s %v, %v", len(h.faults), h.faults[:min(3, len(h.faults))], r.Verdict, r.Faults, err)
	}
	if n := overflows(t) - before; n > 0 {
		t.Errorf("%d overflows of an accept queue", n)
	}
	crowd := most(h.came)
	if limit := clients / 3; way == "close" && os.Getenv("HERD_AGENT") == "" && crowd > limit {
		t.Errorf("%d reconnects within 100 ms; the limit is %d", crowd, limit)
	}
	t.Logf("%d clients, %s: at most %d reconnects within 100 ms, the first %.1f s and the last %.1f s after SIGTERM; pod gone after %.1f s at most, %s",
		clients, way, crowd, h.came[0].Sub(began).Seconds(), h.came[len(h.came)-1].Sub(began).Seconds(), took.Seconds(), r.Verdict)
}
