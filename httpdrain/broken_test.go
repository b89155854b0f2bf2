package httpdrain

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/lastcall-dev/lastcall/drain"
)

// What has begun at the last call ends properly only if its client loses nothing by it,
// whether its handler then returns, as most do, or panics, as ReverseProxy does.
func TestBrokenAnswers(t *testing.T) {
	const (
		events = "text/event-stream; charset=utf-8"
		token  = `data: {"object":"chat.completion.chunk"}` + "\n\n"
		failed = `data: {"error":{"message":"the server is shutting down","type":"server_error","param":null,"code":"server_shutting_down"}}` + "\n\n"
	)
	for _, tt := range []struct {
		name, method, contentType, sent string
		want, ending                    string
	}{
		{"a subscription", "GET", events, "data: 1\n\n", "data: 1\n\nretry: N\n\n", ""},
		{"a subscription within an event", "GET", events, "data: 1\n", "data: 1\n", "truncated"},
		{"an answer", "POST", events, token, token + failed, "error event"},
		{"an answer of no known dialect", "POST", events, "data: 1\n\n", "data: 1\n\n", "truncated"},
		{"a complete answer", "POST", events, token + "data: [DONE]\n\n", token + "data: [DONE]\n\n", ""},
		{"lines", "POST", "application/x-ndjson", "{}\n", "{}\n", "truncated"},
	} {
		for _, version := range []int{1, 2, h2c} {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, HTTP/%d, panics %v", tt.name, version, panics), func(t *testing.T) {
					t.Parallel()
					began := make(chan struct{})
					s := play(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Content-Type", tt.contentType)
						_, _ = io.WriteString(w, tt.sent)
						_ = http.NewResponseController(w).Flush()
						close(began)
						<-r.Context().Done()
						if _, err := io.WriteString(w, "data: more\n\n"); panics {
							panic(http.ErrAbortHandler)
						} else if err == nil && tt.contentType == events {
							t.Error("something is written after the last call")
						}
					}))
					client, url := s.client(version)
					defer client.CloseIdleConnections()
					req, _ := http.NewRequestWithContext(t.Context(), tt.method, url+"/", nil)
					resp, err := client.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					<-began
					first := make([]byte, len(tt.sent))
					if _, err := io.ReadFull(resp.Body, first); err != nil {
						t.Fatal(err)
					}
					signals := make(chan drain.Signal, 1)
					signals <- drain.Terminate // the second one: last call now
					r := run(t, s, config(), signals)
					rest, err := io.ReadAll(resp.Body)
					got := string(first) + regexp.MustCompile(`retry: [12]\d{3}\n`).ReplaceAllString(string(rest), "retry: N\n")
					if len(tt.ending) > 0 && tt.contentType != events {
						got = got[:min(len(got), len(tt.want))] // what its handler has added is cut as well
					}
					if got != tt.want || (err == nil) != (tt.ending == "") {
						t.Errorf("the client reads %q, %v; want %q", got, err, tt.want)
					}
					ending, verdict := "", drain.Clean
					for _, one := range r.Open {
						ending += one.Ending
					}
					if tt.ending != "" {
						verdict = drain.Cut
					}
					if ending != tt.ending || r.Verdict != verdict || len(r.Faults) > 0 {
						t.Errorf("%s, endings %q, faults %v; want %s, %q", r.Verdict, ending, r.Faults, verdict, tt.ending)
					}
				})
			}
		}
	}
}
