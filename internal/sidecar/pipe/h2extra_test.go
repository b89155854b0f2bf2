package pipe

import (
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// Streams beyond the usual number of a connection are counted over all connections: with
// many of them the next connection cannot take as many again.
func TestExtraStreams(t *testing.T) {
	app := startApp(t, func(c net.Conn) { // one that allows any number and answers none
		_ = http2.NewFramer(c, nil).WriteSettings()
		_, _ = io.Copy(io.Discard, c)
	})
	const extra = 20
	p := startPipe(t, app, Auto, func(cfg *Config) { cfg.H2.MaxExtraStreams = extra })
	awaitExtra := func(want int64) {
		t.Helper()
		polltest.Eventually(t, "extra streams are counted", func() bool { return p.extraStreams.Load() == want })
	}
	open := func(r *raw, n int) {
		for i := range n {
			block := []byte{0x82, 0x86, 0x84} // GET, http, /
			if r.WriteHeaders(headers(uint32(2*i+1), true, block)) != nil {
				return // it has been ended
			}
		}
	}
	usual, many, more := dialRaw(t, p), dialRaw(t, p), dialRaw(t, p)
	open(many, usualStreams+extra)
	awaitExtra(extra)
	open(usual, usualStreams)
	awaitRequests(t, p, 2*usualStreams+extra)
	if floods := floodsOf(p.Stats().H2); floods != 0 {
		t.Fatalf("%d connections were ended", floods)
	}
	open(more, usualStreams+1)
	more.wantAmong("ENHANCE_YOUR_CALM")
	awaitExtra(extra)
	_ = many.Close()
	awaitExtra(0)
	if floods := floodsOf(p.Stats().H2); floods != 1 {
		t.Errorf("%d connections were ended, want 1", floods)
	}
}
