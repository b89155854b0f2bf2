package podtest

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
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
			if err != nil {
				t.Fatal(err)
			}
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
