package sockets

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// startNginx starts one before a backend and returns its process and address.
func startNginx(t *testing.T, backend string) (*os.Process, string, uint16) {
	t.Helper()
	program := peers.Need(t, "nginx")
	address, dir := nettest.FreeAddress(t, "127.0.0.1"), t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(peers.NginxConf(dir, address, backend)), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-c", conf)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() })
	polltest.NoError(t, func() error {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
	return cmd.Process, address, netip.MustParseAddrPort(address).Port()
}

// nginx closes its listeners at SIGQUIT, and its idle connections with them; a client that
// watched only the listeners would miss the response.
func TestNginx(t *testing.T) {
	for _, quit := range []bool{false, true} {
		t.Run(fmt.Sprintf("quit=%v", quit), func(t *testing.T) {
			t.Parallel()
			s := startServer(t, "127.0.0.1:0")
			process, address, port := startNginx(t, s.address)
			for range 5 {
				c := dial(t, address)
				for range 5 {
					c.asks("/")
					c.reads()
				}
			}
			c := dial(t, address)
			c.asks("/slow")
			<-s.requests
			h := startHook(t, port, nil)
			if quit {
				if err := process.Signal(syscall.SIGQUIT); err != nil {
					t.Fatal(err)
				}
			}
			h.stays()
			s.free <- struct{}{}
			c.reads()
			if !quit {
				_ = c.Close()
			}
			want := drain.Assumed // nginx keeps its pool
			if quit {
				want = drain.Clean
			}
			r := h.ends(want)
			if took := time.Duration(r.Duration); took > doubtTime {
				t.Errorf("it took %v", took)
			}
		})
	}
}
