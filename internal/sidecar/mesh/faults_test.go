package mesh

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// hidden is a stats matcher that shows nothing.
const hidden = `stats_config: {stats_matcher: {reject_all: true}}`

// Without stats every open connection is busy, and the report names the setting that shows them.
func TestHiddenStats(t *testing.T) {
	p := startPod(t, "http", "--config-yaml", hidden)
	idle := p.idle()
	r := p.hook(short(), nil)
	r.holds()
	_ = idle.Close()
	report := r.returns(drain.Clean)
	if len(report.Faults) != 1 || !strings.Contains(report.Faults[0], "set proxyStatsMatcher: {inclusionSuffixes: ") {
		t.Errorf("faults: %q", report.Faults)
	}
}

// refused changes a hook's options: nothing listens on Envoy's admin port.
func (p *pod) refused(ports ...uint16) func(*Options) {
	address := nettest.FreeAddress(p.t, "127.0.0.1")
	return func(o *Options) { o.Admin, o.Fallback.Ports = address, ports }
}

// Without the admin API the app's own sockets show a request in flight.
func TestAdminRefused(t *testing.T) {
	p := startPod(t, "http")
	busy := p.busy()
	r := p.hook(short(), p.refused(p.app))
	p.awaitLog("cannot use Envoy's admin API")
	r.holds()
	p.release()
	busy.Answer(t)
	report := r.returns(drain.Assumed) // Envoy's connection to the app stays open
	if len(report.Faults) != 1 || !strings.Contains(report.Faults[0], "connection refused; watching the app's ports instead") {
		t.Errorf("faults: %q", report.Faults)
	}
	r.hook.End(t.Context())
}

// Without ports every listener of the pod is watched, except the mesh's own.
func TestEveryPort(t *testing.T) {
	p := startPod(t, "http")
	admin, listen := portOf(p.admin), portOf(p.listen)
	h := &Hook{o: Options{Options: envoy.Options{Admin: p.admin, LeaveOut: []uint16{listen}}}}
	if ports := h.everyPort(); slices.Contains(ports, admin) || slices.Contains(ports, listen) || slices.Contains(ports, 15021) {
		t.Errorf("%v; want neither the admin port %d, nor --ignore-port %d, nor 15021", ports, admin, listen)
	}
	h.o.LeaveOut = nil
	// The test's own listeners are not another process's: only Envoy's are expected.
	if ports := h.everyPort(); !slices.Contains(ports, listen) {
		t.Errorf("%v; want the listener %d", ports, listen)
	}
}

func portOf(address string) uint16 {
	_, text, _ := net.SplitHostPort(address)
	n, _ := strconv.ParseUint(text, 10, 16)
	return uint16(n)
}

// stop makes Envoy hang until the test ends.
func (p *pod) stop() {
	p.t.Helper()
	found := regexp.MustCompile(`msg="Envoy started" pid=(\d+)`).FindStringSubmatch(p.log.String())
	if found == nil {
		p.t.Fatalf("no process of Envoy's in\n%s", p.log)
	}
	pid, _ := strconv.Atoi(found[1])
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
}

// An Envoy that hangs delays the hook by seconds, and then the app's sockets are watched.
func TestAdminHangs(t *testing.T) {
	p := startPod(t, "http")
	p.busy()
	p.stop()
	r := p.hook(short(), func(o *Options) { o.Fallback.Ports, o.PilotAgent = []uint16{p.app}, portOf(p.admin) })
	p.awaitLog("cannot use Envoy's admin API")
	r.holds()
	p.release()
	report := r.returns(drain.Assumed)
	if len(report.Faults) != 2 || !strings.Contains(report.Faults[1], "drain by Istio's agent: ") {
		t.Errorf("faults: %q", report.Faults)
	}
}

// In an IPv6 pod Istio's Envoy has its admin API on ::1.
func TestAdminOnIPv6(t *testing.T) {
	ln := nettest.Listen(t, nettest.FreeAddress(t, "::1")) // of [::1]:0, 127.0.0.1 may have a listener
	posted := make(chan string, 1)
	nettest.Serve(t, ln, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { posted <- r.Method + " " + r.URL.Path }))
	h := &Hook{o: Options{PilotAgent: ln.Addr().(*net.TCPAddr).AddrPort().Port()}}
	if err := h.drainByAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-posted; got != "POST /drain" {
		t.Error(got)
	}
}

// One that hangs later makes every open connection busy, until the deadline.
func TestAdminHangsLater(t *testing.T) {
	p := startPod(t, "http")
	idle := p.idle()
	c := hook.Within(short(), 4*time.Second)
	c.MinimumDrain = 2 * time.Second
	began := time.Now()
	r := p.hook(c, nil)
	p.awaitLog("msg=draining")
	p.stop()
	idle.Ask("/")
	if report := r.returns(drain.Cut); len(report.Open) != 1 || report.Open[0].Ending != "left to the app" {
		t.Errorf("open: %+v", report.Open)
	}
	if took := time.Since(began); took < 4*time.Second || took > patience/2 {
		t.Errorf("the hook took %v; its deadline is 4 s", took)
	}
	r.hook.End(t.Context())
}

// The deadline includes the time that a hook has spent on an admin API that does not answer.
func TestDeadlineAfterFallback(t *testing.T) {
	p := startPod(t, "http")
	p.busy()
	began := time.Now()
	r := p.hook(hook.Within(short(), 4*time.Second), p.refused(p.app))
	r.returns(drain.Cut)
	if took := time.Since(began); took < 3500*time.Millisecond || took > patience/2 {
		t.Errorf("the hook took %v; its deadline is 4 s", took)
	}
}

// The connections of app containers end with them, and are counted.
func TestRendezvous(t *testing.T) {
	name := fmt.Sprint("@lastcall.dev/test-hooks-", os.Getpid())
	if err := connectToSidecar(name).leave(nil); err != nil { // it returned before the sidecar's hook began, which sees its sockets
		t.Error(err)
	}
	early := connectToSidecar(name) // an app's hook that is first
	h := acceptContainers(name, slog.New(slog.DiscardHandler))
	defer h.close()
	late := connectToSidecar(name)
	ends := make(chan net.Conn, 2)
	await := func(running, connected int32) {
		t.Helper()
		polltest.NoError(t, func() error {
			if h.running.Load() != running || h.connected.Load() != connected {
				return fmt.Errorf("%d of %d left; want %d of %d", h.running.Load(), h.connected.Load(), running, connected)
			}
			return nil
		})
	}
	await(2, 2)
	for _, g := range []*appConn{early, late} {
		if err := g.leave(func(c net.Conn) error {
			file, err := c.(*net.UnixConn).File()
			if err == nil {
				c, err = net.FileConn(file)
				_ = file.Close()
			}
			ends <- c
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	await(2, 2) // another process holds them now
	_ = (<-ends).Close()
	await(1, 2)
	_ = (<-ends).Close()
	await(0, 2)
	if err := connectToSidecar("@lastcall.dev/test-no-sidecar").leave(nil); err != nil {
		t.Errorf("without a sidecar's hook: %v", err)
	}
}

// A process of the pod cannot make the sidecar's hook hold connections without a bound.
func TestRendezvousIsBounded(t *testing.T) {
	name := fmt.Sprint("@lastcall.dev/test-bounded-", os.Getpid())
	h := acceptContainers(name, slog.New(slog.DiscardHandler))
	defer h.close()
	for i := range 2 * maxContainers {
		c, err := net.Dial("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i >= maxContainers {
			_ = c.SetReadDeadline(time.Now().Add(patience))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Fatalf("connection %d: %v; want its end", i+1, err)
			}
		}
	}
	if n := h.running.Load(); n != maxContainers {
		t.Errorf("%d connections; want %d", n, maxContainers)
	}
}
