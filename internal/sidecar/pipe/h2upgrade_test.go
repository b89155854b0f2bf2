package pipe

//lint:file-ignore SA1019 net/http does not upgrade to HTTP/2; this deprecated handler does

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// startH2C runs an app that upgrades from HTTP/1.1 to HTTP/2.
func startH2C(t *testing.T, h http.HandlerFunc) net.Addr {
	return startHTTP(t, h2c.NewHandler(h, new(http2.Server)).ServeHTTP)
}

const upgradeToH2 = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"

// An app that supports the upgrade to HTTP/2 does not see the offer; everything else of the request reaches it.
func TestH2UpgradeIsDeclined(t *testing.T) {
	app := startH2C(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %q %s", r.Proto, r.Header.Get("A"), r.Header["Upgrade"], body)
	})
	for _, protocol := range []Protocol{Auto, HTTP} {
		p := startPipe(t, app, protocol)
		c := dialPipe(t, p)
		one := "POST / HTTP/1.1\r\nHost: app\r\nContent-Length: 3\r\n" + strings.TrimSuffix(upgradeToH2, "\r\n") + "A: b\r\n\r\nabc"
		two := strings.Replace(one, "A: b", "UPGRADE:h2c\r\nA: b", 1)
		c.send(one + two + one)
		for i := range 3 {
			if body := bodyOf(c.response("POST")); body != "HTTP/1.1 b [] abc" {
				t.Errorf("%v, response %d: %q", protocol, i, body)
			}
		}
		awaitActivity(t, p, 1, 0)
	}
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
		{"that upgrades", "curl", "HTTP/1.1 1000", []string{"--http2"}},
		{"that upgrades", "curl", "HTTP/2.0 1000", []string{"--http2-prior-knowledge"}},
		{"of net/http", "curl", "HTTP/2.0 1000", []string{"--http2-prior-knowledge"}},
		{"of HTTP/1.1 only", "curl", "HTTP/1.1 1000", []string{"--http2"}},
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
			})
		}
	}
}

func echoProto(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, "%s %d\n", r.Proto, n)
}
