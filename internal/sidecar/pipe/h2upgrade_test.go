package pipe

//lint:file-ignore SA1019 net/http does not upgrade to HTTP/2; this deprecated handler does

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
)

const upgradeToH2 = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"

// An app that supports the upgrade to HTTP/2 does not see the offer; everything else of the request reaches it.
func TestH2UpgradeIsDeclined(t *testing.T) {
	upgrades := h2c.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %q %s", r.Proto, r.Header.Get("A"), r.Header["Upgrade"], body)
	}), new(http2.Server))
	app := startHTTP(t, upgrades.ServeHTTP)
	for _, protocol := range []Protocol{Auto, HTTP} {
		p, c := startClient(t, app, protocol)
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
