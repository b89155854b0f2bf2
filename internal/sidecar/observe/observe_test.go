//go:build linux

package observe

import (
	"net/netip"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

var mustRemote = netip.MustParseAddrPort("192.0.2.1:50000")

// A request of some segments and an answer of some, again and again, or one request more.
func TestBySegments(t *testing.T) {
	for _, tt := range []struct {
		in, out int
		want    turn
	}{
		{1, 1, app}, {1, 5, app}, {2, 1, app}, {7, 7, app}, {8, 7, client}, {14, 7, app}, {16, 7, client}, {3, 4, client},
		{3, 6, app}, {17, 23, unclear}, {5, 0, unclear},
	} {
		if got := bySegments(tt.in, tt.out); got != tt.want {
			t.Errorf("%d segments in, %d out: %v; want %v", tt.in, tt.out, got, tt.want)
		}
	}
}

// The fates of destroyed sockets, with the counters that Linux 6.18 reported for each end.
func TestJudge(t *testing.T) {
	seen := func(state sockdiag.State, received, sent uint64, turn turn) *connection {
		return &connection{Socket: sockdiag.Socket{State: state, Received: received, Sent: sent, Inode: 1}, turn: turn}
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
		want     fate
	}{
		"idle, closed by the app":                  {end(11, 21, 20, 1, 1, 0), nil, true, answered},
		"request in flight, closed by the app":     {requestLast(end(21, 21, 20, 2, 1, 0)), nil, true, wasUnanswered},
		"unread request":                           {requestLast(end(20, 20, 20, 2, 10, 0)), nil, false, wasReset},
		"unread rest of an answered request":       {end(20, 20, 20, 1, 10, 0), seen(sockdiag.Established, 20, 10, client), false, answered},
		"reset with its listener, not accepted":    {sockdiag.Socket{State: closed}, nil, false, wasReset},
		"aborted by the app while idle":            {sockdiag.Socket{State: closed}, seen(sockdiag.Established, 10, 20, app), false, nothing},
		"aborted by the app with a request":        {sockdiag.Socket{State: closed}, seen(sockdiag.Established, 10, 20, client), false, wasReset},
		"client closed first, no answer":           {requestLast(end(11, 1, 0, 1, 0, 0)), nil, false, left},
		"client closed first, seen in CLOSE_WAIT":  {requestLast(end(11, 1, 0, 1, 1, 0)), seen(sockdiag.CloseWait, 11, 0, client), false, left},
		"client reset":                             {requestLast(end(10, 0, 0, 1, 0, 0)), nil, false, left},
		"no request, closed by the client":         {end(1, 1, 0, 0, 0, 0), nil, false, nothing},
		"request after the app's close":            {end(10, 21, 20, 2, 0, 0), seen(sockdiag.Established, 10, 20, app), false, crossed},
		"client reset in the middle of the answer": {end(10, 32768, 100000, 1, 0, 3876512), nil, false, left},
		"unread bytes and half an answer":          {end(20, 10, 20, 1, 10, 10), seen(sockdiag.Established, 20, 10, client), false, wasReset},
		"closed by the app, seen in FIN_WAIT1":     {requestLast(end(21, 21, 20, 2, 1, 0)), seen(sockdiag.FinWait1, 20, 20, client), false, wasUnanswered},
		"client's FIN acknowledges the app's":      {requestLast(empty(end(21, 21, 20, 2, 1, 0), 1)), seen(sockdiag.Established, 20, 20, client), false, wasUnanswered},
		"client's FIN came before":                 {requestLast(empty(end(21, 21, 20, 2, 1, 0), 2)), seen(sockdiag.Established, 20, 20, client), false, left},
	} {
		if got := judge(tt.s, tt.was, func() bool { return tt.appFirst }); got != tt.want {
			t.Errorf("%s: %v; want %v", name, got, tt.want)
		}
	}
}
