package gateway

import (
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/lastcall-dev/lastcall/drain"
)

// The last call ends an event stream of the gateway without an error only if the client
// loses nothing by it; other responses end with the error that the client's library raises.
func TestEventStreamsAtTheLastCall(t *testing.T) {
	const (
		token  = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n"
		failed = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"the server is shutting down\"}}\n\n"
	)
	for _, tt := range []struct{ name, method, sent, rest, ending string }{
		{"a subscription", "GET", "data: 1\n\n", "retry: N\n\n", ""},
		{"an answer", "POST", token, failed, "error event"},
		{"an answer of no known dialect", "POST", "data: 1\n\n", "", "truncated"},
		{"a complete answer", "POST", token + "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n", "", ""},
	} {
		for _, client := range []string{"HTTP/1.1", "HTTP/2"} {
			t.Run(tt.name+", "+client, func(t *testing.T) {
				addr, _, _ := h2cApp(t, 250, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, tt.sent)
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				})
				g := start(t, setup{Endpoints: []string{addr}, Protocol: H2C})
				c, url := g.client(t, false)
				if client == "HTTP/2" {
					c, url = g.h2cClient(t)
				}
				req, err := http.NewRequestWithContext(t.Context(), tt.method, url+"/shop", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if resp.Proto[:len(client)] != client {
					t.Fatalf("it is %s", resp.Proto)
				}
				if _, err := io.ReadFull(resp.Body, make([]byte, len(tt.sent))); err != nil {
					t.Fatal(err)
				}
				g.signals <- drain.Terminate
				g.signals <- drain.Terminate
				rest, err := io.ReadAll(resp.Body)
				got := regexp.MustCompile(`retry: [12]\d{3}\n`).ReplaceAllString(string(rest), "retry: N\n")
				if got != tt.rest || (err == nil) != (tt.ending == "") {
					t.Errorf("the client reads %q, %v; want %q", got, err, tt.rest)
				}
				ending := ""
				r := g.ended(t)
				for _, one := range r.Open {
					ending += one.Ending
				}
				if ending != tt.ending || (r.Verdict == drain.Clean) != (tt.ending == "") {
					t.Errorf("%s, endings %q; want %q", r.Verdict, ending, tt.ending)
				}
				g.access.until(t, " 200 DT last_call ")
			})
		}
	}
}
