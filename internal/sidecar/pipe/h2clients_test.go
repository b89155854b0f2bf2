package pipe

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// What the code of a user sees when the last call ends its request.
func TestH2LastCallAsClientsSeeIt(t *testing.T) {
	app := startH2(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/begun" {
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	get := func(path string) func(string, *http.Client) string {
		return func(url string, c *http.Client) string {
			resp, err := c.Get(url + path)
			return tell(resp, err)
		}
	}
	for _, tt := range []struct {
		name   string
		ask    func(url string, c *http.Client) string
		ending string // in the report
		says   string // of what the client says
	}{
		{"net/http, waiting", get("/wait"), "503", `503 ""`},
		{"net/http, within a body", get("/begun"), "reset", `stream error: stream ID 1; INTERNAL_ERROR; received from peer`},
		{"net/http, uploading", func(url string, c *http.Client) string {
			r, w := io.Pipe()
			defer w.Close()
			go func() { _, _ = w.Write(make([]byte, 1000)) }()
			resp, err := c.Post(url+"/wait", "text/plain", r)
			return tell(resp, err)
		}, "503", `503 ""`},
		{"curl, waiting", func(url string, _ *http.Client) string {
			return shell(t, "curl", "--http2-prior-knowledge", "-sS", "-w", "%{http_code}", url+"/wait")
		}, "503", "503, and is content"},
		{"curl, within a body", func(url string, _ *http.Client) string {
			return shell(t, "curl", "--http2-prior-knowledge", "-sS", url+"/begun")
		}, "reset", ", and fails"},
		{"nghttp, waiting", func(url string, _ *http.Client) string {
			return shell(t, "nghttp", "-v", "--no-verify-peer", url+"/wait")
		}, "503", ":status: 503"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPipe(t, app, HTTP)
			output := make(chan string, 1)
			go func() { output <- tt.ask("http://"+p.Addr(0).String(), h2Client(t)) }()
			awaitRequests(t, p, 1)
			awaitActivity(t, p, 1, 1)
			if tt.ending == "reset" { // the client has its head
				polltest.Eventually(t, "a response", func() bool { return p.Stats().Responses[2] > 0 })
			}
			_ = p.Drain(ctx)
			left, err := p.LastCall(ctx, 0)
			if err != nil || len(left) != 1 || left[0].Ending != tt.ending {
				t.Errorf("the report says %+v, %v; want %s", left, err, tt.ending)
			}
			if got := <-output; !strings.Contains(got, tt.says) {
				t.Errorf("the client says %s; want %s", got, tt.says)
			}
			awaitActivity(t, p, 0, 0)
		})
	}
}

// A client whose request head is too large gets a status.
func TestH2HeadTooLargeAsClientsSeeIt(t *testing.T) {
	app := startH2(t, func(http.ResponseWriter, *http.Request) {})
	for _, tt := range []struct {
		name   string
		limits http2.Limits
	}{
		{"list", http2.Limits{MaxHeaderList: 1000}},
		{"block", http2.Limits{MaxHeaderBlock: 1000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPipe(t, app, HTTP, func(c *Config) { c.H2 = tt.limits })
			url := "http://" + p.Addr(0).String()
			if got := shell(t, "curl", "--http2-prior-knowledge", "-sS", "-w", "%{http_code}", "-H", "x: "+strings.Repeat("a", 2000), url); got != "431, and is content" {
				t.Errorf("curl says %s", got)
			}
			req, _ := http.NewRequest("GET", url, nil)
			req.Header.Set("x", strings.Repeat("a", 2000))
			if got := tell(h2Client(t).Do(req)); got != `431 ""` {
				t.Errorf("net/http says %s", got)
			}
			if got := p.Stats(); floodsOf(got.H2) != 2 || got.Responses[4] != 2 {
				t.Errorf("%+v", got)
			}
		})
	}
}

func tell(resp *http.Response, err error) string {
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	output := fmt.Sprintf("%d %q", resp.StatusCode, b)
	if err != nil {
		output += " " + err.Error()
	}
	return output
}

// shell runs a program. How it fails differs with its version; that it does must not.
func shell(t *testing.T, name string, args ...string) string {
	cmd := exec.CommandContext(t.Context(), peers.Need(t, name), args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return fmt.Sprintf("%s, and fails: %v, %s", out, err, &complaint)
	}
	return fmt.Sprintf("%s, and is content", out)
}
