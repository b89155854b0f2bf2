package podtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// The app sees a client at an address that is neither loopback nor one of the pod's own: what it allows to programs of
// its machine it does not allow to clients. It is the same for all connections of a client.
func TestClientsAreNotLocal(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.serve(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
	p.clientsAreNotLocal()
}

func (p *pod) clientsAreNotLocal() {
	p.t.Helper()
	var own []net.Addr
	if err := p.Pod.Do(func() (err error) {
		own, err = net.InterfaceAddrs()
		return err
	}); err != nil {
		p.t.Fatal(err)
	}
	for family, address := range p.addresses() {
		var seen []netip.Addr
		for range 3 {
			_, text, err := p.get(address, "/")
			from, bad := netip.ParseAddrPort(text)
			if err != nil || bad != nil {
				p.t.Fatalf("%s: %q, %v", family, text, err)
			}
			isOwn := slices.ContainsFunc(own, func(a net.Addr) bool { return a.(*net.IPNet).IP.Equal(from.Addr().AsSlice()) })
			if from.Addr().IsLoopback() || isOwn {
				p.t.Errorf("%s: the app sees %v", family, from)
			}
			seen = append(seen, from.Addr())
		}
		if seen = slices.Compact(seen); len(seen) != 1 {
			p.t.Errorf("%s: one client has the addresses %v", family, seen)
		}
	}
}

// isFromSidecar reports whether an address of a client, as the app sees it, is one from which the sidecar connects: the
// pipe's own, or as Istio has it.
func (p *pod) isFromSidecar(text string) bool {
	from, err := netip.ParseAddrPort(text)
	at := from.Addr()
	return err == nil && (tcp.Sources4.Contains(at) || tcp.Sources6.Contains(at) ||
		at == netip.MustParseAddr("127.0.0.6") || at == p.Pod.IPv6)
}

// A port without a listener is refused, as without a sidecar: probes and load balancers see that the app does not listen.
// While an app restarts its clients wait.
func TestPortWithoutListener(t *testing.T) {
	t.Parallel()
	p := start(t)
	for family, at := range map[string]func(uint16) string{"IPv4": p.Pod.TCP4, "IPv6": p.Pod.TCP6} {
		refused := func(port uint16) bool {
			c, err := p.Client.Dial(t.Context(), "tcp", at(port))
			if err == nil {
				_ = c.Close()
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		if !refused(7071) {
			t.Errorf("%s: a port without a listener is not refused", family)
		}
		ln := p.Pod.Listen(t, "tcp", at(7071))
		accepted := make(chan net.Addr, 1)
		go func() {
			if c, err := ln.Accept(); err == nil {
				accepted <- c.RemoteAddr()
				_ = c.Close()
			}
			_ = ln.Close()
		}()
		if refused(7071) {
			t.Errorf("%s: a port with a listener is refused", family)
		}
		if from := (<-accepted).String(); !p.isFromSidecar(from) {
			t.Errorf("%s: the app sees %s, not the sidecar", family, from)
		}
		polltest.Eventually(t, "the listener has gone", func() bool {
			return p.Pod.Do(func() error {
				ln, err := net.Listen("tcp", at(7071))
				if err == nil {
					err = ln.Close()
				}
				return err
			}) == nil
		})
		if refused(7071) {
			t.Errorf("%s: a client does not wait for an app that restarts", family)
		}
	}
}

// More short connections than the pod has local ports do not wait for ports: each end keeps one for a minute.
func TestPortsDoNotRunOut(t *testing.T) {
	t.Parallel()
	p := start(t)
	if err := p.Pod.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40199"), 0)
	}); err != nil {
		t.Fatal(err)
	}
	p.Pod.Answer(t, 5433, func(c net.Conn) string { // the sidecar closes first
		_, _ = io.Copy(io.Discard, c)
		return "an answer"
	})
	for _, address := range []string{p.Pod.TCP4(5433), p.Pod.TCP6(5433)} {
		for i := range 1000 {
			c, err := p.Client.Dial(t.Context(), "tcp", address)
			must.Do(t, err)
			_ = c.SetDeadline(time.Now().Add(patience))
			fmt.Fprint(c, "a question")
			_ = c.(*net.TCPConn).CloseWrite()
			b, err := io.ReadAll(c)
			_ = c.Close()
			if err != nil || string(b) != "an answer" {
				t.Fatalf("%s, connection %d: %q, %v", address, i, b, err)
			}
		}
	}
}
