//go:build linux

package observe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// TestRefine: what an outcome means for protocols other than HTTP/1.1; see the picture in protocol_linux.go.
func TestRefine(t *testing.T) {
	const second = time.Second
	// The app has answered the client's bytes, or the client has sent unread more since.
	socket := func(received, sent uint64, in, out, unread uint32, ago time.Duration) sockdiag.Socket {
		return sockdiag.Socket{Remote: mustRemote, State: closed, Received: received, Sent: sent,
			SegmentsReceived: in, SegmentsSent: out, ReadQueue: unread,
			LastReceived: ago, LastSent: ago, MSS: 1448}
	}
	sighted := func(answered, received, sent uint64) *connection {
		return &connection{Socket: sockdiag.Socket{State: sockdiag.Established, Received: received, Sent: sent},
			answered: answered, answeredSent: sent, turn: app}
	}
	parts := func(pause time.Duration) *connection {
		c, now := sighted(100, 100, 900), time.Unix(1e9, 0)
		for i := range time.Duration(4) {
			c.part(now.Add(i * pause))
		}
		return c
	}
	first := sighted(100, 100, 200) // with the beginning of a streamed response
	first.part(time.Unix(1e9, 0))
	first.grow(socket(100, 210, 1, 3, 0, 0), time.Unix(1e9, 0).Add(second/2))
	streamed := socket(100, 900, 1, 9, 0, 0)
	streamed.LastReceived = second
	for _, tt := range []struct {
		name string
		port Protocol
		s    sockdiag.Socket
		was  *connection
		f    outcome
		want outcome
	}{
		{"HTTP/1.1, idle", HTTP1, socket(200, 900, 2, 2, 0, 0), nil, answered, answered},
		{"HTTP/1.1, a request that was read", HTTP1, socket(200, 100, 2, 1, 0, second), sighted(100, 200, 100),
			unanswered, unanswered},
		{"TLS, perhaps HTTP/2 whose request of 20 s is silent behind an earlier answer", Opaque,
			socket(2000, 3000, 5, 5, 0, 20*second), nil, answered, unclearProtocol},
		{"TLS, a request", Opaque, socket(900, 3000, 5, 5, 0, second), sighted(780, 900, 3000), unanswered,
			unclearProtocol},
		{"TLS, close_notify is unread", Opaque, socket(824, 3000, 5, 5, 24, 0), nil, reset, unclearProtocol},
		{"perhaps TLS's close_notify", Unspecified, socket(824, 3000, 5, 5, 24, 0), nil, reset, unclearCrossed},
		{"gRPC, in flight or not", Opaque, socket(900, 3000, 5, 5, 0, second), sighted(800, 900, 3000), unanswered,
			unclearProtocol},
		{"a WebSocket, by its small messages", HTTP1, socket(200, 500, 12, 12, 0, 60*second), nil, answered,
			unclearProtocol},
		{"a WebSocket that is silent", HTTP1, socket(164, 129, 1, 1, 0, 60*second), nil, answered, unclearProtocol},
		{"a WebSocket with one short message each way", HTTP1, socket(171, 132, 2, 2, 0, 60*second), nil, answered,
			unclearProtocol},
		{"two short responses", HTTP1, socket(171, 150, 2, 2, 0, 60*second), nil, answered, answered},
		{"a streamed response", HTTP1, socket(100, 900, 1, 9, 0, 0), parts(300 * time.Millisecond), answered,
			unclearStream},
		{"a streamed response that ended long ago", HTTP1, socket(100, 900, 1, 9, 0, 9*second),
			parts(300 * time.Millisecond), answered, answered},
		{"a response across two looks", HTTP1, socket(100, 900, 1, 9, 0, 0), parts(10 * time.Millisecond), answered,
			answered},
		{"a streamed response, one part after the first look", HTTP1, socket(100, 210, 1, 3, 0, 0), first, answered,
			unclearStream},
		{"a streamed response that no look has shown", HTTP1, streamed, nil, answered, unclearStream},
	} {
		g := newLedger(Options{Protocols: map[uint16]Protocol{0: tt.port}})
		if got := g.refine(tt.f, tt.s, tt.was, func() bool { return true }); got != tt.want {
			t.Errorf("%s: %v; want %v", tt.name, got, tt.want)
		}
	}
}

// TestLeftAtTheEnd: a client that seems to have left when the listener closed may have lost its request to the app's
// exit, unless a look has shown its close.
func TestLeftAtTheEnd(t *testing.T) {
	now := time.Unix(1e9, 0)
	seen := func(state sockdiag.State) *connection { return &connection{Socket: sockdiag.Socket{State: state}} }
	for _, tt := range []struct {
		closed time.Time // of the listener, which has a successor
		was    *connection
		empty  uint32 // segments: the handshake's two, and those of the end
		want   outcome
	}{
		{now, nil, 4, unclearCrossed},
		{now.Add(-exitSpread / 2), seen(sockdiag.Established), 4, unclearCrossed},
		{now, seen(sockdiag.CloseWait), 4, leftByClient},
		{now.Add(-time.Second), nil, 4, leftByClient},
		{now.Add(-time.Second), nil, 3, unclearCrossed}, // the client's FIN acknowledged the app's
	} {
		g := newLedger(Options{Protocols: map[uint16]Protocol{0: HTTP1}})
		g.listeners[1] = true
		g.unlistened(sockdiag.Socket{Cookie: 1, Ended: tt.closed})
		g.listen([]sockdiag.Socket{{Cookie: 2, State: sockdiag.Listen}})
		s := sockdiag.Socket{
			Remote: mustRemote, Received: 121, Acked: 1, SegmentsReceived: 1, EmptyReceived: tt.empty, Ended: now,
		}
		if got := g.refine(leftByClient, s, tt.was, func() bool { return false }); got != tt.want {
			t.Errorf("%+v, seen as %+v: %v", tt, tt.was, got)
		}
		g.options.Protocols[0] = Opaque // a busy machine takes its time for the end of a process
		if got := g.refine(leftByClient, s, nil, func() bool { return false }); got != unclearProtocol {
			t.Errorf("%+v, of an opaque protocol: %v", tt, got)
		}
	}
}

// TestUnreadTable: without the small sockets, no end of a connection is certain.
func TestUnreadTable(t *testing.T) {
	table, err := sockdiag.OpenTable()
	must.Do(t, err)
	must.Do(t, table.Close())
	w := &Watch{kernel: kernel{table: table}, ledger: newLedger(Options{})}
	if ends, got := w.closedHere()(), &w.ledger.result; len(ends) > 0 || got.Overruns != 1 {
		t.Errorf("%v, %+v", ends, got)
	}
}

// TestMoreRequests: each of the client's segments of another protocol may have been a request.
func TestMoreRequests(t *testing.T) {
	s := sockdiag.Socket{Remote: mustRemote, Received: 700, Sent: 1500, SegmentsReceived: 5}
	for outcome, want := range map[outcome]Unclear{
		reset: {}, unclearCrossed: {Crossed: 1}, unclearProtocol: {Opaque: 5}, unclearOrder: {SameTick: 1},
		unclearStream: {Streams: 1},
	} {
		g := newLedger(Options{})
		g.count(ending{outcome: outcome, connection: &connection{Socket: s}})
		if got := g.result.Unclear; got != want {
			t.Errorf("%v: %+v; want %+v", outcome, got, want)
		}
	}
}

// TestJustBefore: an end just before the beginning is the termination's if it may have lost a request to the exit.
func TestJustBefore(t *testing.T) {
	began := time.Unix(1e9, 0)
	for exited, want := range map[time.Time]int{{}: 0, began: 0, began.Add(-20 * time.Millisecond): 1} {
		g := newLedger(Options{})
		g.exited[0] = exited
		end := ending{connection: &connection{}, at: began.Add(-exitSpread), outcome: unclearOrder}
		end.Ended = end.at
		g.begin(began, "test", []ending{end})
		if got := g.result.Unclear.SameTick; got != want {
			t.Errorf("the listener closed %v before: %d", began.Sub(exited), got)
		}
	}
}

// TestLearn: a port is TLS if all its connections may be.
func TestLearn(t *testing.T) {
	g := newLedger(Options{})
	one := sockdiag.Socket{Received: 600, Sent: 1500, SegmentsReceived: 3, Local: mustRemote}
	g.ports[one.Local.Port()] = true
	for range learned {
		if g.isOpaque(one, nil) {
			t.Fatal("opaque before enough were seen")
		}
		g.learn(one)
	}
	if !g.isOpaque(one, nil) {
		t.Error("not opaque")
	}
	one.Sent = 120 // no certificate
	if g.learn(one); g.isOpaque(one, nil) {
		t.Error("opaque after a connection without a handshake")
	}
}

var mustRemote = netip.MustParseAddrPort("192.0.2.1:50000")

// The outcomes of destroyed sockets, with the counters that Linux 6.18 reported for each end.
func TestJudge(t *testing.T) {
	seen := func(state sockdiag.State, received, sent uint64, turn turn) *connection {
		return &connection{Socket: sockdiag.Socket{State: state, Received: received, Sent: sent, Inode: 1}, turn: turn}
	}
	open := func(received, sent uint64, turn turn) *connection {
		return seen(sockdiag.Established, received, sent, turn)
	}
	end := func(received, acked, sent uint64, segments, unread, unacked uint32) sockdiag.Socket {
		s := sockdiag.Socket{State: closed, Received: received, Acked: acked, Sent: sent, SegmentsReceived: segments,
			SegmentsSent: 1, ReadQueue: unread, WriteQueue: unacked}
		s.Remote = mustRemote
		return s
	}
	requestLast := func(s sockdiag.Socket) sockdiag.Socket {
		s.LastReceived, s.LastSent = 44e6, 72e6
		return s
	}
	empty := func(s sockdiag.Socket, received uint32) sockdiag.Socket {
		s.EmptyReceived = received
		return s
	}
	for name, tt := range map[string]struct {
		s        sockdiag.Socket
		was      *connection
		appFirst bool
		want     outcome
	}{
		"idle, closed by the app":               {end(11, 21, 20, 1, 1, 0), nil, true, answered},
		"request in flight, closed by the app":  {requestLast(end(21, 21, 20, 2, 1, 0)), nil, true, unanswered},
		"unread request":                        {requestLast(end(20, 20, 20, 2, 10, 0)), nil, false, reset},
		"unread rest of an answered request":    {end(20, 20, 20, 1, 10, 0), open(20, 10, client), false, answered},
		"reset with its listener, not accepted": {sockdiag.Socket{State: closed}, nil, false, reset},
		"aborted by the app while idle":         {sockdiag.Socket{State: closed}, open(10, 20, app), false, noRequest},
		"aborted by the app with a request":     {sockdiag.Socket{State: closed}, open(10, 20, client), false, reset},
		"client closed first, no answer":        {requestLast(end(11, 1, 0, 1, 0, 0)), nil, false, leftByClient},
		"client closed first, seen in CLOSE_WAIT": {requestLast(end(11, 1, 0, 1, 1, 0)),
			seen(sockdiag.CloseWait, 11, 0, client), false, leftByClient},
		"client reset":                            {requestLast(end(10, 0, 0, 1, 0, 0)), nil, false, leftByClient},
		"no request, closed by the client":        {end(1, 1, 0, 0, 0, 0), nil, false, noRequest},
		"request after the app's close":           {end(10, 21, 20, 2, 0, 0), open(10, 20, app), false, unclearCrossed},
		"client reset in the middle of an answer": {end(10, 32768, 100000, 1, 0, 3876512), nil, false, leftByClient},
		"unread bytes and half an answer":         {end(20, 10, 20, 1, 10, 10), open(20, 10, client), false, reset},
		"closed by the app, seen in FIN_WAIT1": {requestLast(end(21, 21, 20, 2, 1, 0)),
			seen(sockdiag.FinWait1, 20, 20, client), false, unanswered},
		"client's FIN acknowledges the app's": {requestLast(empty(end(21, 21, 20, 2, 1, 0), 1)),
			open(20, 20, client), false, unanswered},
		"client's FIN came before": {requestLast(empty(end(21, 21, 20, 2, 1, 0), 2)),
			open(20, 20, client), false, leftByClient},
	} {
		if got := judge(tt.s, tt.was, func() bool { return tt.appFirst }); got != tt.want {
			t.Errorf("%s: %v; want %v", name, got, tt.want)
		}
	}
}

// TestLateFIN: the kernel reads the state of a socket before its counters, so a look may count a FIN that the state does
// not show. It is no request.
func TestLateFIN(t *testing.T) {
	for _, state := range []sockdiag.State{sockdiag.Established, sockdiag.FinWait1, sockdiag.FinWait2} {
		g, s := newLedger(Options{}), sockdiag.Socket{State: sockdiag.Established, Remote: mustRemote, Inode: 1,
			Received: 40, SegmentsReceived: 1, Sent: 20, SegmentsSent: 1}
		g.ports[s.Local.Port()] = true
		g.look([]sockdiag.Socket{s}, time.Unix(1e9, 0))
		c := g.open[0]
		s.State, s.Received, s.ReadQueue = state, 41, 1
		if g.look([]sockdiag.Socket{s}, time.Unix(1e9, 1)); c.turn != app || c.busy() {
			t.Errorf("state %v: turn %v, busy %v", state, c.turn, c.busy())
		}
		end := s
		if end.State, end.Acked = closed, 21; state == sockdiag.Established {
			end.State = sockdiag.CloseWait // the app closes later
			g.look([]sockdiag.Socket{end}, time.Unix(1e9, 2))
			end.State = closed
		}
		if e, _ := g.destroyed(end, func() bool { return true }); e.outcome != answered {
			t.Errorf("state %v: outcome %v", state, e.outcome)
		}
	}
}

// TestProbes: of refused connections, as many may be probes as can have come, unless the node shows them all.
func TestProbes(t *testing.T) {
	began := time.Unix(1e9, 0)
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	for _, tt := range []struct {
		name             string
		probes           []Probe
		refused          []float64 // seconds after the beginning
		clients, perhaps int
	}{
		{"each at its time", []Probe{{8080, time.Second}}, []float64{1, 2, 3, 4}, 0, 4},
		{"more than probes can come", []Probe{{8080, 10 * time.Second}}, []float64{0.3, 0.4}, 1, 1},
		{"the second one comes", []Probe{{8080, 10 * time.Second}}, []float64{0.3, 9.1}, 0, 2},
		{"readiness and liveness", []Probe{{8080, 10 * time.Second}, {8080, 10 * time.Second}},
			[]float64{0.3, 0.4, 0.5}, 1, 2},
		{"no probes", nil, []float64{1, 2}, 2, 0},
	} {
		p, clients, perhaps := newProbes(Options{Probes: tt.probes}), 0, 0
		var all []refusal
		for _, seconds := range tt.refused {
			all = append(all, refusal{at(seconds - 0.025), at(seconds), 1, true})
		}
		p.explain(began, all, func(_ refusal, isPerhaps bool) {
			if isPerhaps {
				perhaps++
			} else {
				clients++
			}
		})
		if clients != tt.clients || perhaps != tt.perhaps {
			t.Errorf("%s: %d clients, %d perhaps probes; want %d, %d", tt.name, clients, perhaps, tt.clients,
				tt.perhaps)
		}
	}
}

// TestLostProbe: a probe that is reset with the app is none of the clients', whether a look has shown it or not, and
// counts once.
func TestLostProbe(t *testing.T) {
	began, kubelet := time.Unix(1e9, 0), netip.MustParseAddrPort("10.244.0.1:32874")
	after := began.Add(10 * time.Millisecond)
	for _, tt := range []struct {
		name string
		peer netip.AddrPort
		sent uint64
		e    ending
		want Unclear
	}{
		{"not accepted, and its peer is forgotten", netip.AddrPort{}, 0, ending{queued: true}, Unclear{Probes: 1}},
		{"not accepted, before the beginning", kubelet, 0, ending{queued: true, known: true}, Unclear{Probes: 1}},
		{"accepted", kubelet, 0, ending{known: true}, Unclear{Probes: 1}},
		{"of a connection with an earlier answer", kubelet, 1, ending{known: true}, Unclear{}},
		{"a client's", mustRemote, 0, ending{known: true}, Unclear{}},
	} {
		g := newLedger(Options{Probes: []Probe{{8080, 5 * time.Second}},
			Local: func(a netip.Addr) bool { return a == kubelet.Addr() }})
		g.begin(began, "test", nil)
		for range 2 {
			s := sockdiag.Socket{Remote: tt.peer, Sent: tt.sent, Local: netip.MustParseAddrPort("10.244.0.9:8080")}
			c := connection{arrived: after, Socket: s}
			tt.e.connection, tt.e.at, tt.e.outcome = &c, after, reset
			g.include(tt.e)
		}
		if got := g.result; got.Unclear != tt.want || got.Lost.Reset != 2-tt.want.Probes {
			t.Errorf("%s, and a second one: %+v, %+v", tt.name, got.Lost, got.Unclear)
		}
	}
}

// TestRefusedProbe: what the node shows as its own was no client, also if the kubelet was late, or a sidecar is in
// between.
func TestRefusedProbe(t *testing.T) {
	began, pod := time.Unix(1e9, 0), netip.MustParseAddrPort("10.244.0.9:8080")
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	none := func(time.Time) (all []Refusal, until time.Time, known bool) { return nil, at(9000), true }
	for _, tt := range []struct {
		name    string
		proxies []uint16
		read    int   // the interval between the readings of the node's reports, ms
		shown   []int // by the node, ms
		want    Lost
		unclear Unclear
	}{
		{"two, of which one is late", nil, 0, []int{1010, 2900}, Lost{}, Unclear{}},
		{"two, of which one is read late", nil, 5000, []int{1010, 7000}, Lost{}, Unclear{}},
		{"one and a client", nil, 0, []int{1010}, Lost{Refused: 1}, Unclear{}},
		{"behind a sidecar", []uint16{15006}, 0, []int{1010, 2010}, Lost{}, Unclear{}},
		{"more than the probes: clients on the node, too", nil, 0, []int{1010, 1500, 2010}, Lost{}, Unclear{Probes: 2}},
		{"behind a sidecar, one passed on or a client", []uint16{15006}, 0, []int{1010}, Lost{}, Unclear{Probes: 1}},
	} {
		g := newLedger(Options{Probes: []Probe{{8080, 5 * time.Second}, {8080, 5 * time.Second}},
			ProxyPorts: tt.proxies, Refusals: none})
		g.begin(began, "test", nil)
		g.resets = []refusal{{at(900), at(1000), 1, true}, {at(1900), at(2000), 1, true}}
		for _, ms := range tt.shown {
			g.probes.refused = append(g.probes.refused, Refusal{pod, at(ms - tt.read), at(ms)})
		}
		g.probes.completeUntil = at(9000)
		got := Termination{Begin: began}
		if g.addRefused(&got); got.Lost != tt.want || got.Unclear != tt.unclear {
			t.Errorf("%s: %+v, %+v", tt.name, got.Lost, got.Unclear)
		}
	}
}
