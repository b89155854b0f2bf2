package agent

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/live"
)

// states is a stream of an agent's states.
type states struct {
	t    *testing.T
	next *bufio.Scanner
}

func watch(t *testing.T, url string) states {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Body.Close() })
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, r.Status)
	}
	return states{t, bufio.NewScanner(r.Body)}
}

// until returns the first state for which is returns true.
func (s states) until(what string, is func(live.State) bool) live.State {
	s.t.Helper()
	for s.next.Scan() {
		var now live.State
		data, isData := strings.CutPrefix(s.next.Text(), "data: ")
		if isData && json.Unmarshal([]byte(data), &now) == nil && is(now) {
			return now
		}
	}
	s.t.Fatalf("the stream ended before %s", what)
	return live.State{}
}

// A termination as both ports show it: the phases, the countdown, the connections and the request that holds the exit.
func TestLiveShowsATermination(t *testing.T) {
	admin, address := withAdmin(t, "")
	r := start(t, []string{"TERMINATION_GRACE_PERIOD_SECONDS=20"}, admin)
	streams := []states{watch(t, "http://"+address+live.EventsPath), watch(t, r.status+live.EventsPath)}
	answer := r.get("/slow")
	<-r.asked
	defer keep(t, r.inbound()).Close()
	for _, s := range streams {
		now := s.until("a busy connection", func(s live.State) bool { return len(s.Holding) == 1 })
		if busy, _ := now.Total(); busy != 1 || now.Phase != "serving" || now.Drain != nil || now.Holding[0].Request != "GET /slow" {
			t.Errorf("serving: %+v", now)
		}
	}
	r.signals <- drain.Terminate
	for _, s := range streams {
		now := s.until("waiting", func(s live.State) bool { return s.Phase == "waiting" })
		if now.Drain == nil || now.Drain.Limit == nil || now.Drain.Kill <= *now.Drain.Limit || now.Drain.Kill > drain.Millis(20*time.Second) || len(now.Holding) != 1 {
			t.Errorf("waiting: %+v", now)
		}
	}
	close(r.free)
	<-answer
	for _, s := range streams {
		s.until("done", func(s live.State) bool { return s.Phase == "done" })
	}
	r.wantEnd(CodeIntended)
}

// Pages of other sites, names of other hosts and requests that change something are refused on both ports.
func TestLiveIsForThisMachine(t *testing.T) {
	admin, address := withAdmin(t, "")
	r := start(t, nil, admin)
	for _, at := range []string{address, strings.TrimPrefix(r.status, "http://")} {
		for _, path := range []string{live.Path, live.EventsPath} {
			for name, change := range map[string]func(*http.Request){
				"origin": func(r *http.Request) { r.Header.Set("Origin", "http://evil.test") },
				"site":   func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
				"host":   func(r *http.Request) { r.Host = "evil.test" },
				"method": func(r *http.Request) { r.Method = http.MethodPost },
			} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				change(request)
				answer, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				if answer.StatusCode != http.StatusForbidden && answer.StatusCode != http.StatusMethodNotAllowed {
					t.Errorf("%s%s, foreign %s: %s", at, path, name, answer.Status)
				}
			}
		}
	}
	r.signals <- drain.Terminate
	r.wantEnd(CodeIntended)
}

// Eight clients that read nothing: the agent ends as if there were none.
func TestLiveDoesNotDelayTheExit(t *testing.T) {
	admin, address := withAdmin(t, "")
	r := start(t, nil, admin)
	for range 8 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("GET " + live.EventsPath + " HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	r.signals <- drain.Terminate
	r.wantEnd(CodeIntended)
}
