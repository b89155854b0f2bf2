package pipe

//lint:file-ignore SA1019 net/http does not upgrade to HTTP/2; this deprecated handler does

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// startH2C runs an app that upgrades from HTTP/1.1 to HTTP/2.
func startH2C(t *testing.T, h http.HandlerFunc) net.Addr {
	return startHTTP(t, h2c.NewHandler(h, new(http2.Server)).ServeHTTP)
}

const upgradeToH2 = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"

// upgrade requests HTTP/2 and returns the client that continues in it.
func upgrade(t *testing.T, p *Pipe, path string) *raw {
	r := &raw{client: dialPipe(t, p)}
	r.send("GET " + path + " HTTP/1.1\r\nHost: app\r\n" + upgradeToH2)
	if line, _ := r.r.ReadString('\n'); line != "HTTP/1.1 101 Switching Protocols\r\n" {
		t.Fatalf("the answer is %q", line)
	}
	readHead(r.r)
	r.send(wirehttp2.Preface)
	r.Framer = http2.NewFramer(r.TCPConn, r.r)
	r.enc, r.dec = hpack.NewEncoder(&r.block), hpack.NewDecoder(4096, nil)
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return r
}

// An upgraded connection is HTTP/2 in everything: its streams are counted, it gets a
// GOAWAY, and ends by the rules of HTTP/2.
func TestH2Upgrade(t *testing.T) {
	asked, free := make(chan string, 10), make(chan struct{})
	app := startH2C(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		<-free
		fmt.Fprint(w, r.Proto)
	})
	p := startPipe(t, app, Auto)
	r := upgrade(t, p, "/first")
	r.request(3, true, ":path", "/second")
	<-asked
	<-asked
	awaitActivity(t, p, 1, 1)
	if open, _ := p.Open(ctx, 10); len(open) != 2 || open[0].Request != "GET /first" || open[1].Request != "POST /second" || open[0].Protocol != "http/2" {
		t.Errorf("open: %v", open)
	}
	_ = p.Drain(ctx)
	close(free)
	got := strings.Join(r.frames(), "\n")
	for _, want := range []string{"GOAWAY 2147483647 NO_ERROR", "HEADERS 1 end=false :status=200", `DATA 1 "HTTP/1.1"`, `DATA 3 "HTTP/2.0"`} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s:\n%s", want, got)
		}
	}
	if !strings.HasSuffix(got, "GOAWAY 3 NO_ERROR") {
		t.Errorf("the last frame is not the final GOAWAY:\n%s", got)
	}
	awaitActivity(t, p, 0, 0)
	if s := p.Stats(); s.H2.Upgrades != 1 || s.Requests != 2 {
		t.Errorf("%+v", s)
	}
}

func TestH2UpgradeLastCall(t *testing.T) {
	app := startH2C(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	p := startPipe(t, app, HTTP)
	r := upgrade(t, p, "/")
	_, _ = r.r.Peek(wirehttp2.HeaderLen) // the app's SETTINGS
	left, err := p.LastCall(ctx, 0)
	if err != nil || len(left) != 1 || left[0].Ending != "503" || left[0].Request != "GET /" {
		t.Errorf("%v, %v", left, err)
	}
	r.want("HEADERS 1 end=true :status=503", "GOAWAY 1 NO_ERROR")
}

func TestH2UpgradeThatIsNone(t *testing.T) {
	t.Run("the app does not know it", func(t *testing.T) {
		p := startPipe(t, startHTTP(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }), Auto)
		c := dialPipe(t, p)
		for range 2 {
			c.send("GET / HTTP/1.1\r\nHost: app\r\n" + upgradeToH2)
			if body := bodyOf(c.response("GET")); body != "HTTP/1.1" {
				t.Errorf("the answer is %q", body)
			}
		}
	})
	t.Run("no preface", func(t *testing.T) {
		app := answering(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
		p := startPipe(t, app, Auto)
		c := dialPipe(t, p)
		c.send("GET / HTTP/1.1\r\nHost: app\r\n" + upgradeToH2)
		readHead(c.r)
		c.send("GET / HTTP/1.1\r\n\r\n")
		r := &raw{client: c, Framer: http2.NewFramer(c.TCPConn, c.r), dec: hpack.NewDecoder(4096, nil)}
		if got := strings.Join(r.frames(), "\n"); !strings.HasSuffix(got, "GOAWAY 1 PROTOCOL_ERROR") {
			t.Errorf("got %s", got)
		}
		awaitActivity(t, p, 0, 0)
	})
}

// Real clients, by upgrade and by prior knowledge, with apps that speak HTTP/2.
func TestH2Clients(t *testing.T) {
	apps := map[string]net.Addr{
		"that upgrades":    startH2C(t, echoProto),
		"of net/http":      startH2(t, echoProto),
		"of HTTP/1.1 only": startHTTP(t, echoProto),
	}
	for _, tt := range []struct {
		app, peer, says string
		args            []string
	}{
		{"that upgrades", "curl", "HTTP/1.1 1000", []string{"--http2"}}, // as the app sees it
		{"that upgrades", "curl", "HTTP/2.0 1000", []string{"--http2-prior-knowledge"}},
		{"of net/http", "curl", "HTTP/2.0 1000", []string{"--http2-prior-knowledge"}},
		{"of HTTP/1.1 only", "curl", "HTTP/1.1 1000", []string{"--http2"}},
		{"that upgrades", "nghttp", "HTTP/1.1 0", []string{"-u"}}, // as the app sees the first request,
		{"that upgrades", "nghttp", "HTTP/2.0 0", nil},
		{"of net/http", "nghttp", "HTTP/2.0 0", nil},
	} {
		for _, protocol := range []Protocol{Auto, HTTP} {
			t.Run(strings.Join(append([]string{tt.peer, tt.app, protocol.String()}, tt.args...), " "), func(t *testing.T) {
				p := startPipe(t, apps[tt.app], protocol)
				args := append([]string{}, tt.args...)
				url := "http://" + p.Addr(0).String() + "/"
				if tt.peer == "curl" {
					args = append(args, "-sS", "-m", "10", "-d", strings.Repeat("x", 1000), url) // curl 7.88 cannot reuse a connection by prior knowledge
				} else {
					args = append(args, "-t", "10", url, url)
				}
				out, err := exec.CommandContext(t.Context(), peers.Need(t, tt.peer), args...).CombinedOutput()
				if err != nil || strings.Count(string(out), tt.says) < 1 {
					t.Errorf("%v: %s", err, out)
				}
				awaitActivity(t, p, 0, 0)
				asked := slices.Contains(tt.args, "--http2") || slices.Contains(tt.args, "-u")
				if upgraded := p.Stats().H2.Upgrades == 1; upgraded != (asked && tt.app == "that upgrades") {
					t.Errorf("upgraded: %v", upgraded)
				}
			})
		}
	}
}

func echoProto(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%s %d\n", r.Proto, n)
}
