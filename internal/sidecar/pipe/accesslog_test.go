package pipe

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// logged returns the access log of a connection.
func logged(t *testing.T, format accesslog.Format, app net.Addr, protocol Protocol, talk func(c *client)) string {
	t.Helper()
	var out bytes.Buffer
	p, c := startClient(t, app, protocol, func(c *Config) { c.AccessLog = accesslog.New(&out, format) })
	talk(c)
	_ = c.Close()
	awaitActivity(t, p, 0, 0)
	closePipe(t, p)
	return out.String()
}

func TestAccessLog(t *testing.T) {
	out := logged(t, accesslog.Text, startHTTP(t, echo), HTTP, func(c *client) {
		c.send("POST /a\"b HTTP/1.1\r\nHost: shop\r\nUser-Agent: me\r\nX-Request-Id: 7\r\nContent-Length: 3\r\n\r\nabc")
		c.response("POST")
		c.send("bad\r\n\r\n")
		c.rest()
	})
	for _, want := range []string{
		`"POST /a\\"b HTTP/1\.1" 200 - via_upstream - "-" 3 .* "-" "me" "7" "shop" .* inbound 127\.0\.0\.1:.* - default`,
		`"- - HTTP/1\.1" 400 DPE http1\.codec_error`,
	} {
		if lines := regexp.MustCompile(want).FindAllString(out, -1); len(lines) != 1 || strings.Count(out, "\n") != 2 {
			t.Errorf("%d lines are like %s:\n%s", len(lines), want, out)
		}
	}
}

// Names and types are those of Istio's EnvoyFilter-free default (accessLogEncoding:
// JSON).
func TestAccessLogJSON(t *testing.T) {
	app := startHTTP(t, echo)
	var listener string
	out := logged(t, accesslog.JSON, app, HTTP, func(c *client) {
		listener = c.RemoteAddr().String()
		c.send("POST /a\"b\x80 HTTP/1.1\r\nHost: shop\r\nUser-Agent: me\\\r\nX-Request-Id: 7\r\nX-Forwarded-For: 10.0.0.1\r\nContent-Length: 3\r\n\r\nabc")
		c.response("POST")
	})
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, want := range map[string]any{
		"method": "POST", "path": "/a\"b\uFFFD", "protocol": "HTTP/1.1", "authority": "shop", "user_agent": `me\`, "request_id": "7",
		"x_forwarded_for": "10.0.0.1", "response_code": 200.0, "response_flags": "-", "response_code_details": "via_upstream",
		"bytes_received": 3.0, "requested_server_name": nil, "connection_termination_details": nil, "upstream_transport_failure_reason": nil,
		"route_name": "default", "upstream_cluster": "inbound", "upstream_host": app.String(), "downstream_local_address": listener,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
	for _, name := range []string{"start_time", "duration", "bytes_sent", "upstream_service_time", "upstream_local_address", "downstream_remote_address"} {
		if got[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

// A request whose client goes away has its line, wherever that is noticed.
func TestAccessLogOfAClientThatIsGone(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		readHead(bufio.NewReader(c))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
		for b := make([]byte, 1<<16); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
	out := logged(t, accesslog.Text, app, HTTP, func(c *client) {
		c.send(get("/long") + get("/next"))
		readHead(c.r)
		_ = c.SetLinger(0)
	})
	for _, want := range []string{`"GET /long HTTP/1.1" 200 DC downstream_remote_disconnect`, `"GET /next HTTP/1.1" 0 DC downstream_remote_disconnect`} {
		if strings.Count(out, want) != 1 {
			t.Errorf("%q is not there once:\n%s", want, out)
		}
	}
}

// An opaque connection has a line at its end.
func TestAccessLogOfTCP(t *testing.T) {
	app := startApp(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	out := logged(t, accesslog.Text, app, TCP, func(c *client) {
		c.send("hello")
		_ = c.CloseWrite()
		if got := c.rest(); got != "hello" {
			t.Errorf("%q", got)
		}
	})
	if !strings.Contains(out, `"- - -" 0 - - - "-" 5 5 `) {
		t.Error(out)
	}
}
