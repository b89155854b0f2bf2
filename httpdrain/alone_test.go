package httpdrain

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// alone serves by net/http alone until the test ends.
func alone(t *testing.T, server *http.Server, ln net.Listener, secure bool) {
	t.Helper()
	go func() {
		if secure {
			_ = server.ServeTLS(ln, "", "")
		} else {
			_ = server.Serve(ln)
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
}

// ginWriter requires of the server's ResponseWriter what gin's does.
type ginWriter struct{ http.ResponseWriter }

func (w ginWriter) CloseNotify() <-chan bool {
	return w.ResponseWriter.(interface{ CloseNotify() <-chan bool }).CloseNotify()
}

// TestAsNetHTTPAlone: clients get the response that they would get of net/http alone.
func TestAsNetHTTPAlone(t *testing.T) {
	t.Parallel()
	const upload = "POST / HTTP/1.1\r\nHost: app\r\nContent-Length: 1000\r\n\r\nthe rest does not follow"
	for name, tt := range map[string]struct {
		request string
		handler http.HandlerFunc
	}{
		"a stream of gin": {"GET / HTTP/1.1\r\nHost: app\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) {
			select {
			case <-ginWriter{w}.CloseNotify():
			default:
				_, _ = io.WriteString(w, "event")
			}
		}},
		"a body above the limit of MaxBytesReader": {upload, func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4)); err != nil {
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			}
		}},
		"an invalid status, recovered": {"GET / HTTP/1.1\r\nHost: app\r\n\r\n", func(w http.ResponseWriter, _ *http.Request) {
			defer func() { http.Error(w, fmt.Sprint(recover()), http.StatusInternalServerError) }()
			w.WriteHeader(0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := func(address string) string {
				c := dial(t, address, false, nil)
				send(t, c, tt.request)
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				must.Do(t, err)
				defer resp.Body.Close()
				resp.Header.Del("Date")
				text, err := httputil.DumpResponse(resp, true)
				must.Do(t, err)
				return string(text)
			}
			server, _ := newTLSServer()
			server.Handler = tt.handler
			ln := loopback(t)
			alone(t, server, ln, false)
			want := response(ln.Addr().String())
			server, _ = newTLSServer()
			server.Handler = tt.handler
			if got := response(served(t, New(server, Options{}), false)); got != want {
				t.Errorf("the client gets\n%s\nof net/http alone\n%s", got, want)
			}
		})
	}
}

// TestHijackersReachTheSocket: a hijacked connection has the socket that net/http's own has, if there is one.
func TestHijackersReachTheSocket(t *testing.T) {
	t.Parallel()
	for _, upgrade := range []string{"websocket", "other"} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", upgrade, secure), func(t *testing.T) {
				t.Parallel()
				server, config := newTLSServer()
				server.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					nc, rw, err := http.NewResponseController(w).Hijack()
					must.Do(t, err)
					defer nc.Close()
					isOpen := false
					if has, ok := nc.(syscall.Conn); ok {
						if raw, err := has.SyscallConn(); err == nil {
							_ = raw.Control(func(uintptr) { isOpen = true })
						}
					}
					_, _ = fmt.Fprintf(rw, "HTTP/1.1 200 OK\r\n\r\n%v", isOpen)
					_ = rw.Flush()
				})
				c := dial(t, served(t, New(server, Options{}), secure), secure, config)
				send(t, c, "GET / HTTP/1.1\r\nHost: app\r\nConnection: Upgrade\r\nUpgrade: "+upgrade+"\r\n\r\n")
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				must.Do(t, err)
				defer resp.Body.Close()
				if body, err := io.ReadAll(resp.Body); err != nil || string(body) != fmt.Sprint(!secure) {
					t.Errorf("the handler reaches the socket: %q, %v", body, err)
				}
			})
		}
	}
}

// TestTemporaryFilesAreRemoved: net/http removes the files of a form with its request.
func TestTemporaryFilesAreRemoved(t *testing.T) {
	t.Parallel()
	file := make(chan string, 1)
	server, _ := newTLSServer()
	server.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		must.Do(t, r.ParseMultipartForm(0))
		f, err := r.MultipartForm.File["f"][0].Open()
		must.Do(t, err)
		defer f.Close()
		file <- f.(*os.File).Name()
	})
	const form = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\ncontent\r\n--b--\r\n"
	resp, err := http.Post("http://"+served(t, New(server, Options{}), false), "multipart/form-data; boundary=b",
		strings.NewReader(form))
	must.Do(t, err)
	_ = resp.Body.Close()
	name := <-file
	polltest.NoError(t, func() error {
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			return fmt.Errorf("%s has not been removed", name)
		}
		return nil
	})
}

// copied notes what net/http sends without a copy in the program.
type copied struct {
	net.Conn
	n *atomic.Int64
}

func (c copied) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.Conn, r)
	c.n.Add(n)
	return n, err
}

// TestFileIsNotCopied: net/http gets the file that a handler sends, and the kernel can send it.
func TestFileIsNotCopied(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	name := t.TempDir() + "/file"
	must.Do(t, os.WriteFile(name, make([]byte, size), 0o600))
	server, _ := newTLSServer()
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) })
	var n atomic.Int64
	p := New(server, Options{Admit: func(nc net.Conn) net.Conn { return copied{nc, &n} }})
	resp, err := http.Get("http://" + served(t, p, false))
	must.Do(t, err)
	defer resp.Body.Close()
	if got, err := io.Copy(io.Discard, resp.Body); got != size || err != nil {
		t.Errorf("%d bytes, %v", got, err)
	}
	polltest.NoError(t, func() error { // the client may have all before ReadFrom returns
		if got := n.Load(); got < size/2 {
			return fmt.Errorf("%d bytes without a copy", got)
		}
		return nil
	})
}

// hooks makes a server that notes how its hooks are called.
func hooks(server *http.Server, ln net.Listener, note func(string, ...any)) {
	ids := map[net.Conn]int{}
	server.BaseContext = func(l net.Listener) context.Context {
		note("base: its own listener is %v", l == ln)
		return context.Background()
	}
	server.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		note("context of %T", nc)
		return ctx
	}
	server.ConnState = func(nc net.Conn, s http.ConnState) {
		note("%T is %v", nc, s)
		ids[nc]++
		if s == http.StateClosed {
			note("connections: %d", len(ids))
		}
	}
	server.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		note("%s %s, its own server is %v", r.Proto, r.RequestURI, r.Context().Value(http.ServerContextKey) == server)
	})
	server.Protocols = all()
	server.DisableGeneralOptionsHandler = true
}

// TestHooksAsNetHTTPAlone: the program's hooks are called with the connections that net/http alone would pass to them,
// and as often.
func TestHooksAsNetHTTPAlone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ secure, isHTTP2 bool }{
		"HTTP/1.1": {false, false}, "HTTP/1.1, TLS": {true, false}, "HTTP/2": {false, true}, "HTTP/2, TLS": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calls := func(withPlane bool) string {
				server, config := newTLSServer()
				server.TLSConfig.NextProtos = nil
				ln := loopback(t)
				var mu sync.Mutex
				var noted strings.Builder
				closed := make(chan struct{}, 9)
				hooks(server, ln, func(format string, args ...any) {
					mu.Lock()
					defer mu.Unlock()
					fmt.Fprintf(&noted, format+"\n", args...)
					if strings.HasPrefix(format, "connections") {
						closed <- struct{}{}
					}
				})
				if tt.secure {
					server.BaseContext = nil // TLS's listener is passed to it
				}
				if withPlane {
					servedOn(t, New(server, Options{}), ln, tt.secure)
				} else {
					alone(t, server, ln, tt.secure)
				}
				if tt.isHTTP2 {
					c := dialFor(t, ln.Addr().String(), tt.secure, config, "h2")
					f := framer(t, c)
					// OPTIONS *
					block := append([]byte{0x02, 7}, "OPTIONS\x87\x04\x01*\x01\x0bexample.com"...)
					must.Do(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block, EndStream: true, EndHeaders: true}))
					for {
						frame, err := f.ReadFrame()
						must.Do(t, err)
						if frame.Header().StreamID == 1 && frame.Header().Flags.Has(http2.FlagDataEndStream) {
							break
						}
					}
					_ = c.Close()
				} else {
					c := dial(t, ln.Addr().String(), tt.secure, config)
					send(t, c, "OPTIONS * HTTP/1.1\r\nHost: app\r\n\r\n")
					resp, err := http.ReadResponse(bufio.NewReader(c), nil)
					must.Do(t, err)
					_ = resp.Body.Close()
					_ = c.Close()
				}
				<-closed
				mu.Lock()
				defer mu.Unlock()
				return noted.String()
			}
			if got, want := calls(true), calls(false); got != want {
				t.Errorf("the hooks get\n%s\nof net/http alone\n%s", got, want)
			}
		})
	}
}

// TestConfiguredHTTP2: the settings of http2.ConfigureServer are sent to clients, and it is the Plane that ends the
// connections: a request that comes while another one is in flight is served.
func TestConfiguredHTTP2(t *testing.T) {
	t.Parallel()
	const most = 7
	server, config := newTLSServer()
	server.TLSConfig.NextProtos = nil
	began, release := make(chan struct{}, 2), make(chan struct{})
	server.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-release
	})
	//lint:ignore SA1019 programs still use it
	must.Do(t, http2.ConfigureServer(server, &http2.Server{MaxConcurrentStreams: most}))
	p := New(server, Options{})
	f := framer(t, dialFor(t, served(t, p, true), true, config, "h2"))
	next := func(is func(http2.Frame) bool) {
		for {
			frame, err := f.ReadFrame()
			must.Do(t, err)
			if is(frame) {
				return
			}
		}
	}
	next(func(frame http2.Frame) bool {
		settings, ok := frame.(*http2.SettingsFrame)
		if ok {
			if got, _ := settings.Value(http2.SettingMaxConcurrentStreams); got != most {
				t.Errorf("%d streams at once, want %d", got, most)
			}
		}
		return ok
	})
	ask(t, f, 1, "/")
	<-began
	must.Do(t, errors.Join(p.Drain(t.Context()), p.CloseIdle(t.Context(), 0)))
	for range 9 { // a function of RegisterOnShutdown would have been called by then
		must.Do(t, f.WritePing(false, [8]byte{}))
		next(func(frame http2.Frame) bool { _, ok := frame.(*http2.PingFrame); return ok })
	}
	ask(t, f, 3, "/")
	select {
	case <-began:
	case <-time.After(patience):
		t.Error("the second request is not served")
	}
	close(release)
}

// TestTLSListener: a listener of tls.NewListener is served as by net/http alone, and drained below TLS.
func TestTLSListener(t *testing.T) {
	t.Parallel()
	for _, serveTLS := range []bool{false, true} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(fmt.Sprintf("%s, ServeTLS %v", protocol, serveTLS), func(t *testing.T) {
				t.Parallel()
				server, config := newTLSServer()
				server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.Proto, r.TLS != nil) })
				ln := loopback(t)
				own := server.TLSConfig.Clone()
				if own.NextProtos = nil; protocol == "HTTP/2.0" {
					own.NextProtos = []string{"h2"}
				}
				p := New(server, Options{})
				servedOn(t, p, tls.NewListener(ln, own), serveTLS)
				must.Do(t, p.Drain(t.Context()))
				transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
				defer transport.CloseIdleConnections()
				if got := get(&http.Client{Transport: transport, Timeout: patience}, "https://"+ln.Addr().String()); got.err != nil || got.body != protocol+"true" {
					t.Errorf("%v: want %s with TLS", got, protocol)
				}
			})
		}
	}
}

// TestConnectionsOfTLS: a listener of the program's own may return connections of TLS.
func TestConnectionsOfTLS(t *testing.T) {
	t.Parallel()
	server, config := newTLSServer()
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.TLS != nil) })
	own := server.TLSConfig.Clone()
	p := New(server, Options{Admit: func(nc net.Conn) net.Conn { return tls.Server(nc, own) }})
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	if got := get(&http.Client{Transport: transport, Timeout: patience}, "https://"+served(t, p, false)); got.err != nil || got.body != "true" {
		t.Errorf("%v: want true", got)
	}
}
