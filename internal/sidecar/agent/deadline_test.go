package agent

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
)

func deadlineAt(token string, in time.Duration) string {
	return "/deadline/" + token + "?from=delete&at=" + url.QueryEscape(time.Now().Add(in).Format(time.RFC3339Nano))
}

// TestDeadline has the deadline arrive before SIGTERM, or after it, and others that have no effect: in virtual time, with
// a request that does not end and a grace period of 30 s.
func TestDeadline(t *testing.T) {
	type post struct {
		at, in time.Duration // SIGTERM is at 1 s
		code   int
	}
	for _, tt := range []struct {
		name  string
		posts []post
		ends  time.Duration // after SIGTERM
		from  string
	}{
		{name: "before SIGTERM", posts: []post{{900 * time.Millisecond, 8 * time.Second, 200}},
			ends: 5925 * time.Millisecond, from: "delete"},
		{name: "after SIGTERM", posts: []post{{1100 * time.Millisecond, 8 * time.Second, 200}},
			ends: 6100 * time.Millisecond, from: "delete"},
		{name: "a second one is shorter", posts: []post{{1100 * time.Millisecond, 20 * time.Second, 200},
			{9 * time.Second, 4 * time.Second, 200}}, ends: 10 * time.Second, from: "delete"},
		{name: "later than the own one", posts: []post{{900 * time.Millisecond, 30 * time.Second, 409},
			{2 * time.Second, 29 * time.Second, 409}}, ends: 28 * time.Second},
		{name: "passed", posts: []post{{2 * time.Second, -time.Millisecond, 409}}, ends: 28 * time.Second},
		{name: "passed when the termination begins", posts: []post{{100 * time.Millisecond, 500 * time.Millisecond, 200}},
			ends: 28 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				settings, err := meshconfig.Resolve(meshconfig.Input{})
				must.Do(t, err)
				plane := dt.New(dt.Script{Clients: []dt.Client{dt.Get("/endless", 0, time.Hour)}})
				defer plane.Stop()
				a := newAgent(Options{Settings: settings, Status: StatusOptions{HookToken: "7f3a"},
					Log: slog.New(slog.DiscardHandler)})
				a.plane = plane
				s := &status{a: a, metrics: newMetrics(a.phases)}
				a.status = s
				a.phases.ready()
				report := make(chan drain.Report, 1)
				go func() { report <- a.serve(t.Context()) }()
				mux := http.NewServeMux()
				mux.HandleFunc("/deadline/{token...}", own(s.deadline))
				began := time.Now()
				time.AfterFunc(time.Second, func() { a.requests.Send(drain.Terminate) })
				for _, p := range tt.posts {
					time.Sleep(p.at - time.Since(began))
					r := httptest.NewRequest(http.MethodPost, deadlineAt("7f3a", p.in), nil)
					r.RemoteAddr, r.Host = "127.0.0.1:1000", "127.0.0.1:15020"
					w := httptest.NewRecorder()
					mux.ServeHTTP(w, r)
					if w.Code != p.code {
						t.Errorf("%d %s, want %d", w.Code, w.Body, p.code)
					}
				}
				got := <-report
				if took := time.Since(began) - time.Second; took != tt.ends || got.Verdict != drain.Cut ||
					got.DeadlineFrom != tt.from {
					t.Errorf("%s after %v, deadline from %q; want cut after %v, from %q", got.Verdict, took, got.DeadlineFrom,
						tt.ends, tt.from)
				}
			})
		})
	}
}

// TestDeadlineAttacks has callers that may not shorten a drain: a pod elsewhere, a process without the pod's token, a web
// page, a body without end, a caller that sends slowly.
func TestDeadlineAttacks(t *testing.T) {
	r := start(t, nil, func(o *Options) { o.Status.HookToken = "7f3a" })
	send := func(method, path, body string, header ...string) int {
		request, err := http.NewRequest(method, r.status+path, strings.NewReader(body))
		must.Do(t, err)
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		response, err := http.DefaultClient.Do(request)
		must.Do(t, err)
		_ = response.Body.Close()
		return response.StatusCode
	}
	slow, err := net.Dial("tcp", strings.TrimPrefix(r.status, "http://"))
	must.Do(t, err)
	defer func() { _ = slow.Close() }()
	if _, err := slow.Write([]byte("POST " + deadlineAt("7f3a",
		time.Second) + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		method string
		path   string
		body   string
		header []string
		want   int
	}{
		{"another pod's token", "POST", deadlineAt("0000", time.Second), "", nil, 404},
		{"no token", "POST", deadlineAt("", time.Second), "", nil, 404},
		{"GET", "GET", deadlineAt("7f3a", time.Second), "", nil, 405},
		{"a web page", "POST", deadlineAt("7f3a", time.Second), "", []string{"Origin", "https://attacker.example"}, 403},
		{"a body of 1 MiB", "POST", deadlineAt("7f3a", time.Second), strings.Repeat("x", 1<<20), nil, 413},
		{"no time", "POST", "/deadline/7f3a?from=delete", "", nil, 400},
		{"a long source", "POST", deadlineAt("7f3a", time.Second) + "&from=" + strings.Repeat("x", 9), "", nil, 200}, // the first one counts
		{"no source", "POST", strings.Replace(deadlineAt("7f3a", time.Second), "from=delete", "from=", 1), "", nil, 400},
		{"a source of 33 bytes", "POST", strings.Replace(deadlineAt("7f3a", time.Second), "delete", strings.Repeat("x", 33),
			1), "", nil, 400},
		{"a year later", "POST", deadlineAt("7f3a", 365*24*time.Hour), "", nil, 409},
	} {
		if got := send(tt.method, tt.path, tt.body, tt.header...); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	if strings.Contains(r.log.String(), "drain phase") {
		t.Error("a deadline has begun a drain")
	}
	r.terminates()

	without := start(t, nil)
	if code, _ := without.post(deadlineAt("", time.Second)); code != http.StatusNotFound {
		t.Errorf("an agent without a token: %d, want 404", code)
	}
	without.terminates()
}
