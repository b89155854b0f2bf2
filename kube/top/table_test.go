package top

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/live"
)

// view has a pod in each condition.
func view() View {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	limit := drain.Millis(16900 * time.Millisecond)
	return View{Title: "shop/web", IsAll: true, Now: now, Selected: "shop/web-5d9c7b6f4-bbbbb", Pods: []Pod{
		{Namespace: "shop", Name: "web-5d9c7b6f4-aaaaa", Node: "n1", Status: "Running", received: now, State: &live.State{
			Phase: "serving", Connections: []live.Connections{{Protocol: "http/1.1", Idle: 7}}}},
		{Namespace: "shop", Name: "web-5d9c7b6f4-bbbbb", Node: "n1", Status: "Terminating", received: now.Add(-time.Second), State: &live.State{
			Phase: "waiting", Drain: &live.Drain{Took: drain.Millis(6 * time.Second), Limit: &limit, Kill: limit + drain.Millis(2*time.Second)},
			Connections: []live.Connections{{Protocol: "http/1.1", Busy: 1}, {Protocol: "websocket", Busy: 1}},
			Holding: []drain.Conversation{
				{Peer: "10.1.2.3:4", Protocol: "http/1.1", Request: "GET /slow?\x1b[31m", Age: drain.Millis(70 * time.Second)},
				{Peer: "10.1.2.3:5", Protocol: "websocket", Age: drain.Millis(5 * time.Second)},
			}}},
		{Namespace: "shop", Name: "web-5d9c7b6f4-ccccc", Status: "Gone", Report: "drained in 19.9s: 5.0s minimum drain, 14.9s waiting for GET /delay/25 from 10.244.0.1; nothing cut"},
		{Namespace: "shop", Name: "web-5d9c7b6f4-ddddd", Status: "Pending", Problem: "forward a port: not yet"},
	}}
}

func TestText(t *testing.T) {
	const want = `shop/web: 4 pods, 1 draining, 2 connections busy, 7 idle
  POD                  PHASE     LAST CALL  SIGKILL  BUSY  IDLE  OLDEST REQUEST
  web-5d9c7b6f4-aaaaa  serving           -        -     0     7
> web-5d9c7b6f4-bbbbb  waiting       15.9s    17.9s     2     0  1m11s GET /slo…
  web-5d9c7b6f4-ccccc  gone              -        -     -     -  drained in 19.…
  web-5d9c7b6f4-ddddd  pending           -        -     -     -  forward a port…

shop/web-5d9c7b6f4-bbbbb on n1, Terminating
  http/1.1         1 busy     0 idle
  websocket        1 busy     0 idle
     1m11s  http/1.1 10.1.2.3:4 GET /slow?\x1b[31m
      6.0s  websocket 10.1.2.3:5
`
	var got []string
	for line := range strings.SplitSeq(view().Text(Style{Width: 80}), "\n") {
		got = append(got, strings.TrimRight(line, " "))
	}
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// Every line fits into the terminal, however small, with colours as well, and no pod is shown twice.
func TestTextFits(t *testing.T) {
	for _, selected := range []string{"shop/web-5d9c7b6f4-aaaaa", "shop/web-5d9c7b6f4-ccccc", "shop/web-5d9c7b6f4-ddddd", ""} {
		for _, width := range []int{20, 40, 80, 200} {
			v := view()
			v.Selected, v.Problem, v.IsAll = selected, errors.New("no permission\nto list\x1b[2J"), false
			text := v.Text(Style{Width: width, Height: 10, Colour: true})
			if strings.Contains(text, "\x1b[2J") {
				t.Fatalf("an error controls the terminal: %q", text)
			}
			for line := range strings.SplitSeq(text, "\n") {
				if w := ansi.StringWidth(line); w > width {
					t.Errorf("width %d: %d columns: %q", width, w, line)
				}
			}
		}
	}
}

func TestTextWithoutPods(t *testing.T) {
	if got := (View{Title: "shop/web", IsAll: true}).Text(Style{}); !strings.Contains(got, "no pods") {
		t.Error(got)
	}
}
