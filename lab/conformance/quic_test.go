package conformance

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

const (
	quicPort    = 8443
	quicStreams = 20
	quicWork    = 4 * time.Second // of each request
)

// quicPod is a server of HTTP/3 alone in a network namespace of its own, and a client in another.
type quicPod struct {
	*nettest.Net
	server *http3.Server
	client *http3.Transport
	open   atomic.Int64
	idle   string // a file that exists while no request is in flight
}

// udp opens a socket in a namespace.
func udp(t *testing.T, n *nettest.Namespace, port int) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	err := n.Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		return err
	})
	must.Do(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func startQUIC(t *testing.T) *quicPod {
	t.Helper()
	p := &quicPod{Net: nettest.New(t), idle: filepath.Join(t.TempDir(), "idle")}
	certificate := certificatetest.SelfSigned(t, "app.test")
	config := http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate}})
	p.server = &http3.Server{TLSConfig: config, Handler: http.HandlerFunc(p.serve)}
	must.Do(t, os.WriteFile(p.idle, nil, 0o600))
	socket := udp(t, p.Pod, quicPort)
	served := make(chan struct{})
	go func() { defer close(served); _ = p.server.Serve(socket) }()
	dial := &quic.Transport{Conn: udp(t, p.Client, 0)}
	p.client = &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		Dial: func(ctx context.Context, address string, c *tls.Config, q *quic.Config) (*quic.Conn, error) {
			to, err := net.ResolveUDPAddr("udp4", address)
			if err != nil {
				return nil, err
			}
			return dial.Dial(ctx, to, c, q)
		}}
	t.Cleanup(func() { _ = p.client.Close(); _ = dial.Close(); _ = p.server.Close(); <-served })
	return p
}

func (p *quicPod) serve(w http.ResponseWriter, r *http.Request) {
	if p.open.Add(1) == 1 {
		_ = os.Remove(p.idle)
	}
	_, _ = io.WriteString(w, "half, ")
	_ = http.NewResponseController(w).Flush()
	if r.URL.Path == "/slow" {
		select {
		case <-time.After(quicWork):
		case <-r.Context().Done():
		}
	}
	_, _ = io.WriteString(w, "whole")
	if p.open.Add(-1) == 0 {
		_ = os.WriteFile(p.idle, nil, 0o600)
	}
}

// get returns an error unless the response is whole.
func (p *quicPod) get(path string, begun func()) error {
	r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://%s%s", p.Pod.TCP4(quicPort), path), nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: p.client}).Do(r)
	begun()
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && string(body) != "half, whole" {
		err = fmt.Errorf("body %q", body)
	}
	return err
}

// Capture leaves UDP alone, and the hook by sockets does not see QUIC: streams are lost with it as without, and none with a
// signal of the server's own.
func TestQUIC(t *testing.T) {
	agent := buildAgent(t)
	for _, tt := range []struct {
		name     string
		hook     []string // preStop; none: the server ends at once
		captured bool
		lost     int
	}{
		{"as it is", nil, false, quicStreams},
		{"wait --ports", []string{"--ports", fmt.Sprint(quicPort)}, false, quicStreams},
		{"wait --ports, opaque", []string{"--ports", fmt.Sprint(quicPort), "--opaque"}, false, quicStreams},
		{"wait --until", []string{"--until", "file:IDLE"}, false, 0},
		{"wait --until, captured", []string{"--until", "file:IDLE"}, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startQUIC(t)
			if tt.captured {
				runIn(t, p.Pod, agent, "capture")
			}
			if err := p.get("/", func() {}); err != nil {
				t.Fatalf("a request before the end: %v", err)
			}
			var lost atomic.Int64
			var all, begun sync.WaitGroup
			begun.Add(quicStreams)
			for range quicStreams {
				all.Go(func() {
					if p.get("/slow", begun.Done) != nil {
						lost.Add(1)
					}
				})
			}
			begun.Wait()
			began := time.Now()
			if tt.hook != nil {
				args := append([]string{"wait", "--timeout", "20s", "--minimum-drain", "1s", "--quiet-time", "500ms"}, tt.hook...)
				t.Logf("the hook: %s", runIn(t, p.Pod, agent, strings.Split(strings.ReplaceAll(strings.Join(args, "\n"), "IDLE", p.idle), "\n")...))
			}
			took := time.Since(began)
			_ = p.server.Close() // as at SIGTERM
			all.Wait()
			t.Logf("the server ends after %.1f s; %d of %d streams are lost", took.Seconds(), lost.Load(), quicStreams)
			if lost.Load() != int64(tt.lost) {
				t.Errorf("%d of %d streams are lost, want %d", lost.Load(), quicStreams, tt.lost)
			}
		})
	}
}

// runIn runs a program in a namespace and returns the last line of its output.
func runIn(t *testing.T, n *nettest.Namespace, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	must.Do(t, n.Start(cmd))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[len(lines)-1]
}
