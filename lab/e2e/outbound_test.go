//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// flushes is an app that at SIGTERM closes its listener, has no socket at all for 6 s, and then updates its database.
const flushes = `
import http.server, signal, sys, threading, time, urllib.request
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
server = http.server.ThreadingHTTPServer(("", 8080), App)
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
threading.Thread(target=server.serve_forever, daemon=True).start()
while not ended.wait(0.1):
    pass
server.shutdown()
server.server_close()
time.sleep(6)
urllib.request.urlopen(sys.argv[1], timeout=10).read()
`

// TestLastWordsWithoutSocket has an app write to its database at its very end, when it has had no socket for a while.
func TestLastWordsWithoutSocket(t *testing.T) {
	t.Parallel()
	for _, sidecar := range []string{"native", "classic"} {
		t.Run(sidecar, func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t, nil)
			// The database is this test, on the bridge of the node's pods.
			peer := n.start(app{name: "peer", annotations: map[string]string{"lastcall.dev/inject": "false"}})
			bridge := netip.PrefixFrom(netip.MustParseAddr(peer.Status.PodIP), 24).Masked().Addr().Next()
			ln := nettest.Listen(t, netip.AddrPortFrom(bridge, 0).String())
			requested := make(chan time.Time, 1)
			nettest.Serve(t, ln, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requested <- time.Now() }))

			p := n.start(app{
				name: "web", image: "local/httpbin:" + *tag, annotations: map[string]string{"lastcall.dev/sidecar": sidecar},
				args: []string{"-c", flushes, fmt.Sprintf("http://%s/", ln.Addr())},
			})
			began := time.Now()
			n.Kubectl("delete", "pod", p.Name, "--wait=false")
			select {
			case at := <-requested:
				t.Logf("the database was updated after %.1f s", at.Sub(began).Seconds())
			case <-time.After(patience):
				t.Error("the database was not updated")
			}
			n.gone(p)
			t.Logf("the pod was gone after %.1f s", time.Since(began).Seconds())
		})
	}
}
