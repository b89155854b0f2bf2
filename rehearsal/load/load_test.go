package load

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

func TestParseRequest(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Request
	}{
		{"GET /a?b=c", Request{traffic.Request{Method: "GET", Path: "/a?b=c"}, 1}},
		{"4 POST /form -H 'Content-Type: text/plain' -d \"a b\"", Request{traffic.Request{Method: "POST", Path: "/form", Body: "a b", Header: http.Header{"Content-Type": {"text/plain"}}}, 4}},
		{"SSE /events", Request{traffic.Request{Protocol: traffic.Events, Method: "GET", Path: "/events"}, 1}},
		{"WS /chat -d hello", Request{traffic.Request{Protocol: traffic.WebSocket, Method: "GET", Path: "/chat", Body: "hello"}, 1}},
		{`2 TCP 'PING\r\n'`, Request{traffic.Request{Protocol: traffic.TCP, Body: "PING\r\n"}, 2}},
	} {
		got, err := ParseRequest(tt.text)
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(tt.want)
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: got %s, %v", tt.text, a, err)
		}
	}
	for text, want := range map[string]string{
		"":                   "method or path is missing",
		"GET":                "method or path is missing",
		"get /":              "not upper case",
		"GET slow":           "does not begin with /",
		"0 GET /":            "not 1 to 1000",
		"GET / -H nocolon":   "has no colon",
		"GET / -d":           "has no value",
		"GET / -x y":         "unknown option -x",
		"GET / -d '":         "a quote has no end",
		"POST / -d @nowhere": "read the body: open nowhere",
		`TCP '\q'`:           "not quoted",
	} {
		if _, err := ParseRequest(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// The load is mixed evenly by its weights.
func TestTurns(t *testing.T) {
	l := &Load{Requests: []Request{{Weight: 3}, {Request: traffic.Request{Protocol: traffic.Events}, Weight: 9}, {Weight: 1}}}
	next := l.turns()
	var got []int
	for range 8 {
		got = append(got, next())
	}
	if want := []int{0, 0, 2, 0, 0, 0, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// How outcomes are judged.
func TestReason(t *testing.T) {
	ref := Reference{Took: time.Second, Bytes: 100, sameLength: true}
	for _, tt := range []struct {
		request Request
		outcome traffic.Outcome
		want    traffic.Failure
	}{
		{Request{}, traffic.Outcome{Failure: traffic.Ended}, traffic.Ended},
		{Request{}, traffic.Outcome{Failure: traffic.NoPods}, traffic.Refused},
		{Request{}, traffic.Outcome{Failure: "503"}, "503"},
		{Request{}, traffic.Outcome{Bytes: 99, IsByClose: true}, traffic.Short},
		{Request{}, traffic.Outcome{Bytes: 100}, ""},
	} {
		if got := reason(tt.request, ref, tt.outcome); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.outcome, got, tt.want)
		}
	}
	if !(Reference{tail: []byte("[DONE]"), sameTail: true}).isShort(traffic.Outcome{Tail: []byte("data: x")}) {
		t.Error("a stream without its last event is not short")
	}
}
