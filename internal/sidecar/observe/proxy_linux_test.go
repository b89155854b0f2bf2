package observe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// ports of the pod in TestSidecar: of its proxy and of its app.
const proxyPort, behindPort = 15006, 8080

// sidecar is a pod with a proxy and an app, whose every byte the test sends.
type sidecar struct {
	*nettest.Net
	t              *testing.T
	front, behind  net.Listener
	attempts, lost int // of the proxy; of the client, by its own count
}

// tick is longer than that of the kernel's clock, which separates the connections before Begin from those after it.
const tick = 20 * time.Millisecond

// exchange is a request on its way: client to proxy, proxy to app.
type exchange struct{ client, proxy, inner, app net.Conn }

// ask has a client send a request, which the proxy passes on.
func (s *sidecar) ask() (e exchange) {
	s.t.Helper()
	e.client, e.proxy = join(s.t, s.Client, netip.Addr{}, s.front)
	e.inner, e.app = join(s.t, s.Pod, netip.MustParseAddr("127.0.0.6"), s.behind)
	pass(s.t, e.client, e.proxy, "request")
	pass(s.t, e.inner, e.app, "request")
	return e
}

// join connects to a listener: from a source if that is valid.
func join(t *testing.T, from *nettest.Namespace, source netip.Addr, to net.Listener) (near, far net.Conn) {
	t.Helper()
	near, err := from.DialFrom(context.Background(), source, "tcp", to.Addr().String())
	if err == nil {
		far, err = to.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// answer lets the app answer, and the proxy pass it on.
func (s *sidecar) answer(e exchange) {
	s.t.Helper()
	pass(s.t, e.app, e.inner, "answer")
	pass(s.t, e.proxy, e.client, "answer")
}

// fails is the proxy's answer to a client whose request the app has lost.
func (s *sidecar) fails(e exchange) {
	s.t.Helper()
	pass(s.t, e.proxy, e.client, "503")
	s.lost++
}

// refused has the proxy try in vain to connect to the app, as often as it does for one request.
func (s *sidecar) refused() {
	s.t.Helper()
	for range s.attempts {
		_, err := s.Pod.DialFrom(context.Background(), netip.MustParseAddr("127.0.0.6"), "tcp", s.Pod.TCP4(behindPort))
		if !errors.Is(err, syscall.ECONNREFUSED) {
			s.t.Fatal(err)
		}
	}
}

// In a pod with a sidecar, a request counts once, whether the app loses it and the proxy answers with an error, the proxy
// loses it, or both.
func TestSidecar(t *testing.T) {
	const idle, busy = 3, 4
	for _, tt := range []struct {
		name string
		end  func(*sidecar, []exchange)
		want Lost
		late int // clients

		answered int
	}{
		{"the app ends, the proxy answers with an error", func(s *sidecar, all []exchange) {
			_ = s.behind.Close()
			for _, e := range all {
				_ = e.app.Close()
			}
			for _, e := range all {
				s.fails(e)
				_, _ = e.inner.Close(), e.client.Close()
			}
		}, Lost{Unanswered: busy}, 0, 0},
		{"the app ends, the proxy relays it", func(s *sidecar, all []exchange) {
			_ = s.behind.Close()
			for _, e := range all {
				_ = e.app.Close()
				_, _ = e.inner.Close(), e.proxy.Close()
				s.lost++
			}
		}, Lost{Unanswered: busy}, 0, 0},
		{"the proxy ends", func(s *sidecar, all []exchange) {
			_ = s.front.Close()
			for _, e := range all {
				_, _ = e.proxy.Close(), e.inner.Close()
				s.lost++
			}
		}, Lost{Unanswered: busy}, 0, 0},
		{"all is answered", func(s *sidecar, all []exchange) {
			_ = s.behind.Close()
			for _, e := range all {
				s.answer(e)
				_, _, _ = e.app.Close(), e.inner.Close(), e.client.Close()
			}
		}, Lost{}, 0, busy},
		{"the app has closed its listener", func(s *sidecar, all []exchange) {
			_ = s.behind.Close()
			for _, e := range all {
				s.answer(e)
			}
			for range 5 {
				client, proxy := join(s.t, s.Client, netip.Addr{}, s.front)
				pass(s.t, client, proxy, "request")
				s.refused()
				s.fails(exchange{client: client, proxy: proxy})
				_, _ = client.Close(), proxy.Close()
			}
		}, Lost{Refused: 5}, 5, busy},
		{"a request from another container", func(s *sidecar, all []exchange) {
			other, app := join(s.t, s.Pod, netip.MustParseAddr("127.0.0.1"), s.behind)
			pass(s.t, other, app, "request")
			_, _ = s.behind.Close(), app.Close()
			for _, e := range all {
				s.answer(e)
			}
		}, Lost{}, 0, busy},
		{"the app's own request to another pod", func(s *sidecar, all []exchange) {
			client, proxy := join(s.t, s.Pod, netip.Addr{}, s.front)
			pass(s.t, client, proxy, "request")
			_ = proxy.Close()
			for _, e := range all {
				s.answer(e)
			}
		}, Lost{}, 0, busy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &sidecar{Net: nettest.New(t), t: t, attempts: 3}
			s.front, s.behind = s.Pod.Listen(t, "tcp", s.Pod.TCP4(proxyPort)), s.Pod.Listen(t, "tcp", s.Pod.TCP4(behindPort))
			w := watched(t, s.Pod.Path(), Options{ProxyPorts: []uint16{proxyPort}, Attempts: s.attempts}, (*Watch).Standby)
			var all []exchange
			for range idle {
				s.answer(s.ask())
			}
			for range busy {
				all = append(all, s.ask())
			}
			time.Sleep(tick)
			if err := w.Begin(time.Now(), "test"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(tick)
			tt.end(s, all)
			for _, e := range all {
				_ = e.proxy.Close()
			}
			got := w.End(time.Now(), Exit{})
			if got.Lost != tt.want || got.Lost.Total() != s.lost || got.Open+got.Arrivals.Count != idle+busy+tt.late {
				t.Errorf("the clients lost %d of %d: %+v\n%s", s.lost, busy, got.Lost, got.Text())
			}
			if got.Answered != tt.answered || got.Maybe.Unfinished > 0 || got.Maybe.Crossed > 0 {
				t.Errorf("%+v", got)
			}
		})
	}
}
