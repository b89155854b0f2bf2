package admin

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
)

// Requests and responses, as recorded from Envoy 1.40.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		method, target string
		status         int
		media, body    string
	}{
		{"GET", "/ready", 200, mediaText, "LIVE\n"},
		{"POST", "/ready", 200, mediaText, "LIVE\n"},
		{"DELETE", "/ready", 200, mediaText, "LIVE\n"},
		{"HEAD", "/ready", 200, mediaText, ""},
		{"GET", "//ready", 200, mediaText, "LIVE\n"},
		{"GET", "/x/.././ready", 200, mediaText, "LIVE\n"},
		{"GET", "/%72eady", 200, mediaText, "LIVE\n"},
		{"GET", "/ready?x=1&y", 200, mediaText, "LIVE\n"},
		{"GET", "/drain_listeners", 405, mediaText, "Method GET not allowed, POST required."},
		{"PUT", "/healthcheck/fail", 405, mediaText, "Method PUT not allowed, POST required."},
		{"HEAD", "/quitquitquit", 405, mediaText, ""},
		{"POST", "/healthcheck//fail", 200, mediaText, "OK\n"},
		{"POST", "/drain_listeners?bogus=1", 200, mediaText, "OK\n"},
		{"POST", "/drain_listeners?skip_exit", 200, mediaText, "OK\n"},

		{"GET", "/stats?filter=nothing", 200, mediaText, ""},
		{"GET", "/stats?filter=^server\\.(live|state)$", 200, mediaText, "server.live: 1\nserver.state: 0\n"},
		{"GET", "/stats?filter=%5Eserver%2e(live|state)%24", 200, mediaText, "server.live: 1\nserver.state: 0\n"},
		{"GET", "/stats?filter=serv+er.live", 200, mediaText, "server.live: 1\n"}, // a plus is no blank
		{"GET", "/stats?filter=server.live&filter=state", 200, mediaText, "server.live: 1\n"},
		{"GET", "/stats?usedonly&filter=downstream_cx_active$", 200, mediaText,
			"http.inbound_0.0.0.0_8000;.downstream_cx_active: 3\nlistener.0.0.0.0_8000.downstream_cx_active: 3\n"},
		{"GET", "/stats?usedonly=0&filter=_3307", 200, mediaText, ""}, // a switch is on whatever it says
		{"GET", "/stats?filter=_3307.*active", 200, mediaText, "listener.[__1]_3307.downstream_cx_active: 0\n"},
		{"GET", "/stats?filter=8000.*downstream_rq", 200, mediaText, `http.inbound_0.0.0.0_8000;.downstream_rq_active: 2
http.inbound_0.0.0.0_8000;.downstream_rq_total: 40
`},
		{"GET", "/stats?filter=^listener.*8000.*total", 200, mediaText, "listener.0.0.0.0_8000.downstream_cx_total: 10\n"},
		{"GET", "/stats?filter=total_connections&format=json", 200, mediaJSON, `{"stats":[{"name":"server.total_connections","value":3}]}`},
		{"GET", "/stats?filter=nothing&format=json", 200, mediaJSON, `{"stats":[]}`},
		{"GET", "/stats?filter=server.live&format=prometheus", 200, mediaText, "# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n"},
		{"GET", "/stats?filter=[", 400, mediaText, "Invalid re2 regex: error parsing regexp: missing closing ]: `[`"},
		{"GET", "/stats?filter=[&format=xml", 400, mediaText, "Invalid re2 regex: error parsing regexp: missing closing ]: `[`"},
		{"GET", "/stats?format=xml", 400, mediaText, "usage: /stats?format=(json|prometheus|text)\n\n"},
		{"GET", "/stats/prometheus?filter=(", 400, mediaText, "Invalid re2 regex: error parsing regexp: missing closing ): `(`"},
		{"GET", "/stats/prometheus?format=json&filter=server.live", 200, mediaText, "# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n"},
		{"GET", "/stats/prometheus?filter=(8000|3307).*cx", 200, mediaText, `# TYPE envoy_http_downstream_cx_total counter
envoy_http_downstream_cx_total{envoy_http_conn_manager_prefix="inbound_0.0.0.0_8000;"} 10
# TYPE envoy_listener_downstream_cx_total counter
envoy_listener_downstream_cx_total{envoy_listener_address="0.0.0.0_8000"} 10
envoy_listener_downstream_cx_total{envoy_listener_address="[__1]_3307"} 0
# TYPE envoy_http_downstream_cx_active gauge
envoy_http_downstream_cx_active{envoy_http_conn_manager_prefix="inbound_0.0.0.0_8000;"} 3
# TYPE envoy_listener_downstream_cx_active gauge
envoy_listener_downstream_cx_active{envoy_listener_address="0.0.0.0_8000"} 3
envoy_listener_downstream_cx_active{envoy_listener_address="[__1]_3307"} 0
`},
	} {
		t.Run(tt.method+" "+tt.target, func(t *testing.T) {
			s, _ := startServer(t)
			resp, body := ask(t, s, tt.method, tt.target)
			if resp.StatusCode != tt.status || body != tt.body || resp.Header.Get("Content-Type") != tt.media {
				t.Errorf("got %d %s\n%q\nwant %d %s\n%q", resp.StatusCode, resp.Header.Get("Content-Type"), body, tt.status, tt.media, tt.body)
			}
		})
	}
}

func TestUnknownPathsListTheCommands(t *testing.T) {
	s, _ := startServer(t)
	const paths = `invalid path. admin commands are:
  /drain_listeners (POST)
  /healthcheck/fail (POST)
  /quitquitquit (POST)
  /ready
  /stats
  /stats/prometheus
`
	for _, path := range []string{"/", "/nope", "/stats/", "/READY", "/ready/x", "/listeners"} {
		if resp, body := ask(t, s, "GET", path); resp.StatusCode != 404 || body != paths {
			t.Errorf("%s: %s\n%s", path, resp.Status, body)
		}
	}
}

// The bytes of a response, for tools that use grep.
func TestHeadIsWrittenAsEnvoyWritesIt(t *testing.T) {
	s, _ := startServer(t)
	conn := loadtest.Keep(t, s.Addr().String(), 10*time.Second)
	fmt.Fprint(conn, "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	raw, err := io.ReadAll(conn)
	must.Do(t, err)
	for _, part := range []string{
		"HTTP/1.1 200 OK\r\n", "\r\ncache-control: no-cache, max-age=0\r\n", "\r\ncontent-type: text/plain; charset=UTF-8\r\n",
		"\r\ndate: ", "\r\nserver: lastcall\r\n", "\r\nx-content-type-options: nosniff\r\n", "\r\n\r\n5\r\nLIVE\n\r\n0\r\n\r\n",
	} {
		if strings.Count(string(raw), part) != 1 {
			t.Errorf("%q is not there once:\n%q", part, raw)
		}
	}
	for _, name := range []string{"date:", "content-type:", "content-length:"} {
		if strings.Count(strings.ToLower(string(raw)), "\n"+name) > 1 {
			t.Errorf("%s twice:\n%q", name, raw)
		}
	}
}

func TestAddressThatSomebodyHas(t *testing.T) {
	s, _ := startServer(t)
	_, err := Start(s.Addr().String(), Options{})
	if err == nil || !strings.Contains(err.Error(), "listen for the admin API on "+s.Addr().String()) {
		t.Error(err)
	}
}

func TestCloseLetsAnswersOut(t *testing.T) {
	closing := make(chan struct{})
	s, _ := startServer(t, func(o *Options) {
		o.Quit = func() { close(closing) }
	})
	resp, err := http.Post("http://"+s.Addr().String()+"/quitquitquit", "", nil)
	must.Do(t, err)
	<-closing
	s.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "OK\n" {
		t.Errorf("%q, %v", body, err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}
