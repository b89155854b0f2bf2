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

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// In Istio's ambient mesh a process of another pod, ztunnel, has sockets in the pod's namespace: clients reach it at ports
// that do not count, and it connects to the app from their addresses. A client counts once, at the app.
func TestAmbient(t *testing.T) {
	const hbone, port, busy = 15008, 8080, 3
	n := nettest.New(t)
	front, app := n.Pod.Listen(t, "tcp", n.Pod.TCP4(hbone)), n.Pod.Listen(t, "tcp", n.Pod.TCP4(port))
	loop(t, n.Pod, port)
	w := watched(t, n.Pod.Path(), Options{IgnorePorts: []uint16{hbone}}, (*Watch).Standby)
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
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = inner.Close() })
		server, err := app.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
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
	if err := w.Begin(time.Now(), "test"); err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("%+v, want %+v:\n%s", got.Lost, want, got.Text())
	}
}

func pass(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	_, err1 := io.WriteString(from, text)
	_, err2 := io.ReadFull(to, make([]byte, len(text)))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
}

// transparent connects from an address that is not the namespace's.
func transparent(from *nettest.Namespace, source netip.Addr, address string) (conn net.Conn, err error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0)), Control: func(_, _ string, c syscall.RawConn) (err error) {
		if failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) }); failed != nil {
			return failed
		}
		return err
	}}
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
		rule.Table, rule.Family, rule.IPProto, rule.Sport = table, unix.AF_INET, unix.IPPROTO_TCP, netlink.NewRulePortRange(port, port)
		return errors.Join(netlink.RuleAdd(rule), netlink.RouteAdd(&netlink.Route{
			LinkIndex: lo.Attrs().Index, Table: table, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Dst: all,
		}))
	})
	if err != nil {
		t.Fatal(err)
	}
}
