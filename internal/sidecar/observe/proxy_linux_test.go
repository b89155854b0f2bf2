package observe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// ports of the pod in TestSidecar: of its proxy and of its app.
const proxyPort, behindPort = 15006, 8080

// sidecar is a pod with a proxy and an app, whose every byte the test sends.
type sidecar struct {
	*nettest.Net
	t              *testing.T
	front, behind  net.Listener
	source, local  netip.Addr // of the proxy's connections to the app, and of another container's
	attempts, lost int        // of the proxy; of the client, by its own count
}

// tick is longer than that of the kernel's clock, which separates the connections before Begin from those after it.
const tick = 20 * time.Millisecond

// exchange is a request on its way: client to proxy, proxy to app.
type exchange struct{ client, proxy, inner, app net.Conn }

// ask has a client send a request, which the proxy passes on.
func (s *sidecar) ask() (e exchange) {
	s.t.Helper()
	e.client, e.proxy = join(s.t, s.Client, netip.Addr{}, s.front)
	e.inner, e.app = join(s.t, s.Pod, s.source, s.behind)
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
	must.Do(t, err)
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
		_, err := s.Pod.DialFrom(context.Background(), s.source, "tcp", s.behind.Addr().String())
		if !errors.Is(err, syscall.ECONNREFUSED) {
			s.t.Fatal(err)
		}
	}
}

// In a pod with a sidecar, a request counts once, whether the app loses it and the proxy answers with an error, the
// proxy loses it, or both.
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
			other, app := join(s.t, s.Pod, s.local, s.behind)
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
		for _, family := range []string{"IPv4", "IPv6", "lastcall's source"} {
			t.Run(tt.name+"/"+family, func(t *testing.T) {
				s := &sidecar{Net: nettest.New(t), t: t, attempts: 3}
				at, source, local := s.Pod.TCP4, "127.0.0.6", "127.0.0.1"
				switch family {
				case "IPv6":
					at, source, local = s.Pod.TCP6, "::6", "::1"
					s.Pod.AddAddress(t, "::6/128")
				case "lastcall's source":
					source = "198.51.100.7"
					s.Pod.AddAddress(t, "198.51.100.7/32")
				}
				s.source, s.local = netip.MustParseAddr(source), netip.MustParseAddr(local)
				s.front, s.behind = s.Pod.Listen(t, "tcp", at(proxyPort)), s.Pod.Listen(t, "tcp", at(behindPort))
				w := watched(t, s.Pod.Path(), Options{ProxyPorts: []uint16{proxyPort}, Attempts: s.attempts})
				var all []exchange
				for range idle {
					s.answer(s.ask())
				}
				for range busy {
					all = append(all, s.ask())
				}
				time.Sleep(tick)
				must.Do(t, begun(w))
				time.Sleep(tick)
				tt.end(s, all)
				for _, e := range all {
					_ = e.proxy.Close()
				}
				got := w.End(time.Now(), Exit{})
				came := got.Open + got.Arrivals.Count
				if got.Lost != tt.want || got.Lost.Total() != s.lost || came != idle+busy+tt.late {
					t.Errorf("the clients lost %d of %d: %+v\n%s", s.lost, busy, got.Lost, show(got))
				}
				if got.Answered != tt.answered || got.Unclear.Unfinished > 0 || got.Unclear.Crossed > 0 {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

// In Istio's ambient mesh a process of another pod, ztunnel, has sockets in the pod's namespace: clients reach it at
// ports that do not count, and it connects to the app from their addresses. A client counts once, at the app.
func TestAmbient(t *testing.T) {
	const hbone, port, busy = 15008, 8080, 3
	n := nettest.New(t)
	front, app := n.Pod.Listen(t, "tcp", n.Pod.TCP4(hbone)), n.Pod.Listen(t, "tcp", n.Pod.TCP4(port))
	loop(t, n.Pod, port)
	w := watched(t, n.Pod.Path(), Options{IgnorePorts: []uint16{hbone}})
	// ask has a client send a request through its tunnel, and ztunnel connect to the app for it.
	ask := func() (client, tunnel, inner net.Conn, err error) {
		t.Helper()
		client, tunnel = join(t, n.Client, netip.Addr{}, front)
		pass(t, client, tunnel, "request")
		inner, err = transparent(n.Pod, n.Client.IPv4, app.Addr().String())
		return client, tunnel, inner, err
	}
	var servers, clients []net.Conn
	for i := range busy + 1 {
		client, tunnel, inner, err := ask()
		must.Do(t, err)
		server, err := app.Accept()
		must.Do(t, err)
		t.Cleanup(func() { _, _ = inner.Close(), server.Close() })
		if from := netip.MustParseAddrPort(server.RemoteAddr().String()).Addr(); from != n.Client.IPv4 {
			t.Fatalf("the app sees %v", from)
		}
		pass(t, inner, server, "request")
		if i == 0 { // an idle client
			pass(t, server, inner, "answer")
			pass(t, tunnel, client, "answer")
		}
		servers, clients = append(servers, server), append(clients, tunnel)
	}
	must.Do(t, begun(w))
	_ = app.Close()
	for i := range servers {
		_, _ = servers[i].Close(), clients[i].Close()
	}
	for range 2 {
		if _, _, _, err := ask(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	got := w.End(time.Now(), Exit{})
	if want := (Lost{Unanswered: busy, Refused: 2}); got.Lost != want || got.Open+got.Arrivals.Count != busy+3 {
		t.Errorf("%+v, want %+v:\n%s", got.Lost, want, show(got))
	}
}

func pass(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	_, err1 := io.WriteString(from, text)
	_, err2 := io.ReadFull(to, make([]byte, len(text)))
	must.Do(t, errors.Join(err1, err2))
}

// transparent connects from an address that is not the namespace's.
func transparent(from *nettest.Namespace, source netip.Addr, address string) (conn net.Conn, err error) {
	control := func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1)
		})
		return errors.Join(err, failed)
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0)), Control: control}
	err = from.Do(func() (err error) {
		conn, err = d.DialContext(context.Background(), "tcp", address)
		return err
	})
	return conn, err
}

// loop keeps in the namespace what it sends from a port, as istio-cni does for ztunnel.
func loop(t *testing.T, n *nettest.Namespace, port uint16) {
	t.Helper()
	const table = 100
	err := n.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		_, all, _ := net.ParseCIDR("0.0.0.0/0")
		rule := netlink.NewRule()
		rule.Table, rule.Family, rule.IPProto, rule.Sport = table, unix.AF_INET, unix.IPPROTO_TCP,
			netlink.NewRulePortRange(port, port)
		return errors.Join(netlink.RuleAdd(rule), netlink.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Table: table, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Dst: all,
		}))
	})
	must.Do(t, err)
}
