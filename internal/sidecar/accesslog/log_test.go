package accesslog

import (
	"encoding/json"
	"testing"
	"time"
)

// Client input cannot end a field or a line.
func TestTextIsEscaped(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	e := Entry{
		Began: began, FirstByte: began.Add(2 * time.Millisecond), Method: "GET", Path: "/a\"b", Protocol: "HTTP/1.1",
		UserAgent: "x\n\\", Cluster: "inbound", Route: "default", Upstream: "127.0.0.1:8080", ServerName: "shop",
		Received: 3, Sent: 4, Status: 200, Outcome: ViaUpstream,
	}
	want := `[2026-01-02T03:04:05.006Z] "GET /a\"b HTTP/1.1" 200 - via_upstream - "-" 3 4 7 2 "-" "x\x0a\\" "-" "-" "127.0.0.1:8080" inbound - - - shop default` + "\n"
	if got := string(e.AppendText(nil, began.Add(7*time.Millisecond))); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	e = Entry{Began: began, Outcome: Before(FlagConnectFailed, ReasonConnectFailed), UpstreamFailure: "delayed_connect_error"}
	want = `[2026-01-02T03:04:05.006Z] "- - -" 0 UF upstream_reset_before_response_started{remote_connection_failure} - "delayed_connect_error" 0 0 0 - "-" "-" "-" "-" "-" - - - - - -` + "\n"
	if got := string(e.AppendText(nil, began)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

// Each line is valid JSON, whatever bytes the client sent; TLS adds its members.
func TestJSONIsValid(t *testing.T) {
	for _, e := range []Entry{{Path: "/a\"b\x80\x00"}, {HasTLS: true, TLSVersion: "TLS 1.3"}} {
		var got map[string]any
		if err := json.Unmarshal(e.AppendJSON(nil, time.Now()), &got); err != nil {
			t.Fatal(err)
		}
		_, hasTLS := got["downstream_tls_version"]
		if e.Path != "" && got["path"] != "/a\"b\uFFFD\x00" || hasTLS != e.HasTLS || got["method"] != nil || got["response_flags"] != "-" {
			t.Errorf("%v", got)
		}
	}
}
