package pipe

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

func TestListenersCountForThemselves(t *testing.T) {
	app := answering(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	p := startPipe(t, app, HTTP, func(cfg *Config) {
		cfg.Inbound[0].Name = "first"
		cfg.Inbound = append(cfg.Inbound, Inbound{Listen: "127.0.0.1:0", App: "127.0.0.1:1", Protocol: TCP})
	})
	c := dialPipe(t, p)
	c.wantOK()
	awaitActivity(t, p, 1, 0)
	first, second := p.Listeners()[0], p.Listeners()[1]
	if first.Name != "first" || first.Addr.String() != p.Addr(0).String() || first.Open != 1 || first.Busy != 0 || first.AppOpen != 1 ||
		first.Stats.Connections != 1 || first.Stats.Connected != 1 || first.Stats.Requests != 1 || first.Stats.Responses[2] != 1 {
		t.Errorf("the listener that was used: %+v", first)
	}
	if second.Stats != (counters.Stats{}) || second.Open != 0 {
		t.Errorf("the other: %+v", second)
	}
	if sum := p.Stats(); sum != first.Stats {
		t.Errorf("the pipe's counters are %+v, its listeners' %+v", sum, first.Stats)
	}
	_ = c.Close()
	awaitActivity(t, p, 0, 0)
}
