package capture

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// Connections that are open when the rules come, in and out, continue without them.
func TestOpenConnectionsContinue(t *testing.T) {
	n := nettest.New(t)
	var open []*bufio.ReadWriter
	for _, c := range []struct {
		from, to *nettest.Namespace
		port     uint16
	}{{n.Client, n.Pod, 8080}, {n.Pod, n.Client, 80}} {
		ln := c.to.Listen(t, "tcp", fmt.Sprintf(":%d", c.port))
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { _ = conn.Close() })
				go func() { _, _ = io.Copy(conn, conn) }()
			}
		}()
		for _, to := range []string{c.to.TCP4(c.port), c.to.TCP6(c.port)} {
			conn, err := c.from.Dial(t.Context(), "tcp", to)
			must.Do(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			open = append(open, echoes(conn))
		}
	}
	ask := func(when string) {
		for i, conn := range open {
			_, _ = conn.WriteString("hello\n")
			_ = conn.Flush()
			if got, err := conn.ReadString('\n'); got != "hello\n" {
				t.Errorf("%s, connection %d: %q, %v", when, i, got, err)
			}
		}
	}
	ask("before the rules")
	must.Do(t, n.Pod.Do(func() error {
		return Install(resolve(t, Input{Flags: map[string]string{"include-outbound-ranges": "*"}}))
	}))
	ask("after the rules")
}

func echoes(c net.Conn) *bufio.ReadWriter {
	return bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
}

// A link-local address needs an interface, which SO_ORIGINAL_DST lacks: such connections go directly.
func TestLinkLocalIsNotCaptured(t *testing.T) {
	s := newScene(t)
	s.install(t, map[string]string{"include-outbound-ranges": "*"})
	s.Pod.AddAddress(t, "fe80::77:2/64")
	s.Client.AddAddress(t, "fe80::77:1/64")
	for _, c := range []struct {
		from *nettest.Namespace
		to   string
		port int
		want string
	}{{s.Client, "fe80::77:2", appPort, "app"}, {s.Pod, "fe80::77:1", 80, "world"}} {
		var at *net.Interface
		must.Do(t, c.from.Do(func() (err error) {
			at, err = net.InterfaceByName(nettest.Interface)
			return err
		}))
		to := fmt.Sprintf("[%s%%%d]:%d", c.to, at.Index, c.port)
		if got := c.from.Receive(t, netip.Addr{}, to); got != c.want {
			t.Errorf("%s answered %q, want %q", to, got, c.want)
		}
	}
}

// A kernel that cannot look for a listener redirects all ports.
func TestWithoutSocketMatch(t *testing.T) {
	s := newScene(t)
	c := resolve(t, Input{})
	c.anyPort = true
	must.Do(t, s.Pod.Do(func() error { return Install(c) }))
	for _, to := range []string{s.Pod.TCP4(9999), s.Pod.TCP6(9999)} {
		if got, want := s.Client.Receive(t, netip.Addr{}, to), "inbound "+to; got != want {
			t.Errorf("%s answered %q, want %q", to, got, want)
		}
	}
}

// Without IPv6 on loopback the sidecar cannot reach the app by IPv6: clients reach it directly, as without the rules.
func TestLoopbackWithoutIPv6(t *testing.T) {
	s := newScene(t)
	must.Do(t, s.Pod.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("1"), 0) }))
	s.install(t, nil)
	for to, want := range map[string]string{
		s.Pod.TCP6(appPort): "app", s.Pod.TCP4(appPort): "inbound " + s.Pod.TCP4(appPort),
	} {
		if got := s.Client.Receive(t, netip.Addr{}, to); got != want {
			t.Errorf("%s answered %q, want %q", to, got, want)
		}
	}
}

// A port that the app itself redirects to another one has no listener: its clients reach the app as before.
func TestRedirectOfTheApp(t *testing.T) {
	nft := peers.Need(t, "nft")
	s := newScene(t)
	for _, family := range []string{"ip", "ip6"} {
		cmd := exec.Command(nft, fmt.Sprintf("table %s app { chain pre { type nat hook prerouting priority -100; tcp dport 80 redirect to :%d; }; }",
			family, appPort))
		must.Do(t, s.Pod.Start(cmd))
		must.Do(t, cmd.Wait())
	}
	s.install(t, nil)
	for _, to := range []string{s.Pod.TCP4(80), s.Pod.TCP6(80)} {
		if got := s.Client.Receive(t, netip.Addr{}, to); got != "app" {
			t.Errorf("%s answered %q, want the app", to, got)
		}
	}
}
