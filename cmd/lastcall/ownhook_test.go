package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// TestBefore: the app's own hook ends before the agent receives the hook's request, which follows whatever becomes of it.
func TestBefore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "left")
	var mu sync.Mutex
	var seen []string
	note := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, text)
	}
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		note(r.Method + " " + r.URL.String() + " " + r.Header.Get("X-Why") + " " + r.Host)
	}))
	defer app.Close()
	secure := httptest.NewTLSServer(app.Config.Handler)
	defer secure.Close()
	agent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := os.ReadFile(file)
		note(r.Method + " " + r.URL.Path + " " + strings.TrimSpace(string(text)))
	}))
	defer agent.Close()
	port, appPort := portOf(agent.Listener.Addr().String()), portOf(app.Listener.Addr().String())
	for _, c := range []struct {
		name   string
		args   []string
		seen   []string
		failed string
	}{
		{"a command", []string{"20s", "--", "sh", "-c", "sleep 0.1; echo gone > " + file}, []string{"POST /wait gone"}, ""},
		{"a request", []string{"20s", "--", "http://localhost:" + appPort + "/bye?now", "X-Why: end: now", "Host: web"},
			[]string{"GET /bye?now end: now web", "POST /wait"}, ""},
		{"by TLS", []string{"20s", "--", secure.URL + "/bye"}, []string{"GET /bye  " + strings.TrimPrefix(secure.URL, "https://"), "POST /wait"}, ""},
		{"one that fails", []string{"20s", "--", "sh", "-c", "exit 3"}, []string{"POST /wait"}, "the app's own preStop sh: exit status 3"},
		{"one that is missing", []string{"20s", "--", "/none"}, []string{"POST /wait"}, "/none"},
		{"one that does not end", []string{"100ms", "--", "sh", "-c", "sleep 1000 & wait"}, []string{"POST /wait"}, "ended after 100ms"},
	} {
		run := func(flag string) error {
			seen = nil
			_ = os.Remove(file)
			cmd := waitCommand()
			cmd.SetArgs(append([]string{"--status-port", port, flag}, c.args...))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			return cmd.ExecuteContext(t.Context())
		}
		err := run("--before")
		switch {
		case err == nil && c.failed != "":
			t.Errorf("%s: no error, want %q", c.name, c.failed)
		case err != nil && (c.failed == "" || !strings.Contains(err.Error(), c.failed)):
			t.Errorf("%s: %v, want %q", c.name, err, c.failed)
		}
		for i := range seen {
			seen[i] = strings.TrimSpace(seen[i])
		}
		if !slices.Equal(seen, c.seen) {
			t.Errorf("%s: %q, want %q", c.name, seen, c.seen)
		}
		if after := run("--after"); (after == nil) != (err == nil) || !strings.HasPrefix(seen[0], "POST /wait") {
			t.Errorf("%s, after the wait: %v, %q", c.name, after, seen)
		}
	}
	for _, args := range [][]string{{"sh"}, {"--before", "1s"}, {"--before", "-1s", "--", "sh"}, {"--after", "1s"},
		{"--after", "1s", "--before", "1s", "--", "sh"}} {
		cmd := waitCommand()
		cmd.SetArgs(args)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}

// TestBeforeLeavesTheRest: the deadline stays, and the minimum drain counts from the start.
func TestBeforeLeavesTheRest(t *testing.T) {
	full := hook.Until(drain.DefaultConfig(), timers.DefaultLeave) // 25 s, minimum 5 s, quiet 2 s
	for took, want := range map[time.Duration]struct{ deadline, minimum time.Duration }{
		0:                {25 * time.Second, 5 * time.Second},
		time.Second:      {24 * time.Second, 4 * time.Second},
		10 * time.Second: {15 * time.Second, 2 * time.Second},
		40 * time.Second: {time.Millisecond, 2 * time.Second},
	} {
		c := hook.Rest(full, took)
		if c.LastCallAfter() != want.deadline || c.MinimumDrain != want.minimum || c.Validate() != nil {
			t.Errorf("after %v: deadline %v, minimum drain %v, %v; want %v", took, c.LastCallAfter(), c.MinimumDrain, c.Validate(), want)
		}
	}
}

// When only the container restarts, the app's own hook runs all the same, for its limit at most, and nothing is waited for
// after it. The arguments are in the order in which kube/inject writes them.
func TestBeforeARestart(t *testing.T) {
	ln := nettest.Listen(t, "127.0.0.1:0") // the app, which accepts nothing
	defer ln.Close()
	loadtest.Keep(t, ln.Addr().String(), patience).Ask("/")
	port := portOf(ln.Addr().String())
	for _, c := range []struct {
		name, own, limit, failed string
	}{
		{"its hook ends", "echo left", "10s", ""},
		{"its hook does not end", "echo left; sleep 1000 & wait", "500ms", "ended after 500ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, report := filepath.Join(t.TempDir(), "left"), filepath.Join(t.TempDir(), "report")
			cmd := waitCommand()
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			output := logs.New(t.Output(), 1<<20)
			defer output.Close()
			cmd.SetErr(output)
			cmd.SetArgs([]string{
				"--ports", port + "/http", "--report", report, "--minimum-drain", "20s", "--grace-period", "60s",
				"--app-probes", `{"liveness":{"exec":{"command":["false","--ports"]}}}`,
				"--before", c.limit, "--", "sh", "-c", `exec > "$0"; ` + c.own, left,
			})
			began := time.Now()
			err := cmd.ExecuteContext(t.Context())
			took := time.Since(began)
			if text := fmt.Sprint(err); (err != nil) != (c.failed != "") || !strings.Contains(text, c.failed) {
				t.Errorf("%v, want %q", err, c.failed)
			}
			if text, _ := os.ReadFile(left); string(text) != "left\n" {
				t.Errorf("the app's own hook has written %q", text)
			}
			var r drain.Report
			if text, err := os.ReadFile(report); err != nil || json.Unmarshal(text, &r) != nil || r.Verdict != drain.Restarted {
				t.Errorf("report %s, %v; want restart", text, err)
			}
			if took > 15*time.Second { // of 20 s at least without the probe
				t.Errorf("it took %v", took)
			}
		})
	}
}
