package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

func TestConnections(t *testing.T) {
	const ms = drain.Millis(time.Millisecond)
	list := []pipe.Connection{
		{
			Peer: "10.0.0.1:4711", Listener: "web", Protocol: "http/2", State: "busy", Age: 3_723_456 * ms,
			App: "127.0.0.1:8080", Received: 100, Sent: 2000, Open: 2,
			TLS: &tcp.TLSInfo{Version: "TLS 1.3", ServerName: "shop", ALPN: "h2"},
			Requests: []pipe.OpenRequest{{Line: "GET /\x1b[2J\t<a>", Age: 12_345 * ms, Status: 200},
				{Line: "POST /", Age: 5 * ms}},
		},
		{Peer: "[::1]:80", Listener: "web", State: "idle", Age: 999 * ms, Idle: 500 * ms, App: "127.0.0.1:8080"},
	}
	write := func(list []pipe.Connection, format string) string {
		t.Helper()
		_, body, err := writeConnections(list, format)
		must.Do(t, err)
		return string(body)
	}
	if body := write(nil, "json"); body != `{"connections":[]}`+"\n" {
		t.Errorf("without any: %s", body)
	}
	want := strings.Join([]string{
		`PEER           LISTENER  APP             PROTOCOL  TLS              STATE       AGE     RECEIVED  SENT  REQUEST`,
		`10.0.0.1:4711  web       127.0.0.1:8080  http/2    TLS 1.3 shop h2  busy        1h2m3s  100       2000  ` +
			`GET /\x1b[2J\t<a> 12s 200 and 1 more`,
		`[::1]:80       web       127.0.0.1:8080  -         -                idle 500ms  999ms   0         0     -`,
	}, "\n") + "\n"
	if body := write(list, ""); body != want {
		t.Errorf("got\n%swant\n%s", body, want)
	}
	var got struct{ Connections []pipe.Connection }
	must.Do(t, json.Unmarshal([]byte(write(list, "json")), &got))
	if len(got.Connections) != 2 || got.Connections[0].Requests[0].Line != "GET /\x1b[2J\t<a>" ||
		got.Connections[0].TLS.ServerName != "shop" || got.Connections[1].TLS != nil {
		t.Errorf("%+v", got)
	}
	if _, _, err := writeConnections(list, "xml"); err == nil || !strings.Contains(err.Error(), "must be text or json") {
		t.Error(err)
	}
}
