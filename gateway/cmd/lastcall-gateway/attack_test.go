package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// edge is a gateway that runs as in its image, in front of an app.
type edge struct {
	program *exec.Cmd
	address string
	log     string
	ended   chan error
}

// edgePeakLimit is what a gateway may have resident under the attacks of this file, bytes.
const edgePeakLimit = 64 << 20

func startEdge(t *testing.T, program string, app http.HandlerFunc) *edge {
	t.Helper()
	dir := t.TempDir()
	endpoint := httptest.NewServer(app)
	t.Cleanup(endpoint.CloseClientConnections) // handlers may wait for the end of the test
	endpoints := filepath.Join(dir, "endpoints")
	if err := os.WriteFile(endpoints, []byte(endpoint.Listener.Addr().String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &edge{log: filepath.Join(dir, "log"), ended: make(chan error, 1)}
	log, err := os.Create(e.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.program = exec.Command(program, "--endpoints", endpoints, "--http", "127.0.0.1:0", "--grace", "8s")
	e.program.Env = append(os.Environ(), "GOGC=", "GOMEMLIMIT=")
	e.program.Stderr = log
	if err := e.program.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { e.ended <- e.program.Wait() }()
	t.Cleanup(func() { _ = e.program.Process.Kill() })
	serving := regexp.MustCompile(`gateway is serving.* http=(\S+)`)
	for deadline := time.Now().Add(time.Minute); e.address == ""; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(e.log)
		if m := serving.FindSubmatch(text); m != nil {
			e.address = string(m[1])
		} else if err != nil || time.Now().After(deadline) {
			t.Fatalf("it does not serve: %v", err)
		}
	}
	return e
}

// regular sends ordinary requests until done, each of which must be answered, and returns their response times.
func (e *edge) regular(t *testing.T, atLeast int, done <-chan struct{}) []time.Duration {
	t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var took []time.Duration
	for {
		if len(took) >= atLeast {
			select {
			case <-done:
				return took
			default:
			}
		}
		began := time.Now()
		resp, err := client.Get("http://" + e.address + "/")
		if err != nil {
			t.Errorf("an ordinary request was not answered: %v", err)
			return took
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("an ordinary request got %s", resp.Status)
			return took
		}
		took = append(took, time.Since(began))
		time.Sleep(5 * time.Millisecond)
	}
}

// connect opens a connection of the attack, which ends with it.
func (e *edge) connect(ctx context.Context) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", e.address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return c, nil
}

// hold opens connections, sends the same bytes on each, and reads nothing.
func (e *edge) hold(connections int, says string) func(context.Context) {
	return func(ctx context.Context) {
		for range connections {
			c, err := e.connect(ctx)
			if err != nil {
				return
			}
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(c, says)
		}
	}
}

// flood repeats what one connection sends, until the gateway ends it, on so many connections, one after the other.
func (e *edge) flood(connections, times int, begins, repeats string) func(context.Context) {
	return func(ctx context.Context) {
		many := bytes.Repeat([]byte(repeats), 1000)
		for range connections {
			c, err := e.connect(ctx)
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(2 * time.Second)) // the gateway need not read what it does not answer
			_, _ = io.WriteString(c, begins)
			for range times / 1000 {
				if _, err := c.Write(many); err != nil {
					break
				}
			}
			_ = c.Close()
		}
	}
}

// streams sends frames of many streams, until the gateway ends the connection.
func (e *edge) streams(connections, streams int, each func(f *http2.Framer, id uint32) error) func(context.Context) {
	return func(ctx context.Context) {
		for range connections {
			c, err := e.connect(ctx)
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = io.WriteString(c, http2.ClientPreface)
			f := http2.NewFramer(c, nil)
			_ = f.WriteSettings()
			for i := range streams {
				if each(f, uint32(2*i+1)) != nil {
					break
				}
			}
		}
	}
}

func headers(f *http2.Framer, id uint32, method byte, ends bool, more ...byte) error {
	block := append([]byte{method, 0x86, 0x84, 0x41, 1, 'a'}, more...) // :method, http, /, :authority a
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true, EndStream: ends, BlockFragment: block})
}

const (
	getMethod  = 0x82 // HPACK's static table
	postMethod = 0x83
)

// TestGatewayUnderAttack sends what exhausts gateways to one that runs as in its image. It must stay small and
// still serve the requests of another client.
func TestGatewayUnderAttack(t *testing.T) {
	program := programtest.Build(t)
	large, over := make([]byte, 1<<20), make(chan struct{})
	defer close(over)
	app := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Want") == "large":
			for range 64 {
				if _, err := w.Write(large); err != nil {
					return
				}
			}
		case r.Method == http.MethodPost: // does not read
			<-over
		}
	}
	const crlf = "\r\n"
	head := "GET / HTTP/1.1\r\nHost: a\r\n"
	for _, attack := range []struct {
		name string
		run  func(e *edge) func(context.Context)
	}{
		{"100,000 resets on each of 5 connections", func(e *edge) func(context.Context) {
			return e.streams(5, 100_000, func(f *http2.Framer, id uint32) error {
				return errors.Join(headers(f, id, getMethod, true), f.WriteRSTStream(id, http2.ErrCodeCancel))
			})
		}},
		{"100,000 streams that break the protocol, on each of 5 connections", func(e *edge) func(context.Context) {
			return e.streams(5, 100_000, func(f *http2.Framer, id uint32) error {
				return errors.Join(headers(f, id, getMethod, true), f.WriteRawFrame(http2.FrameWindowUpdate, 0, id, []byte{0, 0, 0, 0}))
			})
		}},
		{"500 requests whose head does not end", func(e *edge) func(context.Context) { return e.hold(500, head) }},
		{"300 idle connections", func(e *edge) func(context.Context) { return e.hold(300, head+crlf) }},
		{"150 requests whose body does not end", func(e *edge) func(context.Context) {
			return e.hold(150, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n"+strings.Repeat("x", 100_000))
		}},
		{"150 clients that do not read", func(e *edge) func(context.Context) { return e.hold(150, head+"Want: large\r\n\r\n") }},
		{"200 heads of 1 MiB", func(e *edge) func(context.Context) {
			return e.flood(200, 1000, head, "X-Large: "+strings.Repeat("x", 1030)+crlf)
		}},
		{"50 heads of 20,000 fields", func(e *edge) func(context.Context) { return e.flood(50, 20_000, head, "a:b\r\n") }},
		{"chunks with extensions", func(e *edge) func(context.Context) {
			return e.flood(20, 100_000, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "1;"+strings.Repeat("x", 200)+"\r\nx\r\n")
		}},
		{"2,000 requests in a row without reading", func(e *edge) func(context.Context) { return e.flood(20, 2000, "", head+crlf) }},
		{"1,000,000 PING without reading", func(e *edge) func(context.Context) {
			return e.flood(2, 1_000_000, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678")
		}},
		{"1,000,000 SETTINGS without reading", func(e *edge) func(context.Context) {
			return e.flood(2, 1_000_000, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		}},
		{"100,000 empty DATA frames", func(e *edge) func(context.Context) {
			return e.streams(3, 1, func(f *http2.Framer, id uint32) error {
				err := headers(f, id, postMethod, false)
				for range 100_000 {
					err = errors.Join(err, f.WriteData(id, false, nil))
				}
				return err
			})
		}},
		{"bodies on 100 streams of 5 connections", func(e *edge) func(context.Context) {
			return e.streams(5, 100, func(f *http2.Framer, id uint32) error {
				return errors.Join(headers(f, id, postMethod, false), f.WriteData(id, false, large[:10_000]))
			})
		}},
		{"100 streams that are not read, on 2 connections", func(e *edge) func(context.Context) {
			return func(ctx context.Context) {
				for range 2 {
					c, err := e.connect(ctx)
					if err != nil {
						return
					}
					_ = c.SetWriteDeadline(time.Now().Add(time.Second))
					_, _ = io.WriteString(c, http2.ClientPreface)
					f := http2.NewFramer(c, nil)
					_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
					_ = f.WriteWindowUpdate(0, 1<<30)
					for i := range 100 {
						_ = headers(f, uint32(2*i+1), getMethod, true, append(append([]byte{0, 4}, "want"...), append([]byte{5}, "large"...)...)...)
					}
				}
			}
		}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			e := startEdge(t, program, app)
			before := e.regular(t, 300, programtest.Closed())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			var attacking sync.WaitGroup
			attacking.Go(func() { attack.run(e)(ctx); close(done) })
			during := e.regular(t, 100, done)
			attacking.Wait()
			peak := programtest.Peak(t, e.program)
			t.Logf("others' p99 %v, before %v; peak %d MiB", programtest.Quantile(during, .99), programtest.Quantile(before, .99), peak>>20)
			if peak > edgePeakLimit {
				t.Errorf("%d bytes resident at most, want %d at most", peak, edgePeakLimit)
			}
			cancel()
			programtest.Terminate(t, e.program, e.ended)
		})
	}
}
