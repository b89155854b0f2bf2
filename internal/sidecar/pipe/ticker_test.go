package pipe

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
)

// A stream of bytes that the app ends in its middle, after its SIGTERM, is cut; one that ends with a last word is not.
func TestAppEndsStream(t *testing.T) {
	for name, tt := range map[string]struct {
		halfCloses bool
		last       string
		want       drain.Verdict
	}{
		"in its middle":                         {want: drain.Cut},
		"in its middle, after the client's FIN": {halfCloses: true, want: drain.Cut},
		"with a last word":                      {last: "END", want: drain.Clean},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// On a busy machine streamWordTime may pass between the last word and the end.
			report := endStream(t, tt.halfCloses, tt.last)
			for try := 1; try < 5 && report.Verdict != drain.Clean && tt.last != ""; try++ {
				report = endStream(t, tt.halfCloses, tt.last)
			}
			if report.Verdict != tt.want {
				t.Errorf("verdict %s; %s", report.Verdict, report.Summary())
			}
		})
	}
}

// endStream has an app that sends at intervals end its connection by a last word.
func endStream(t *testing.T, halfCloses bool, last string) drain.Report {
	const interval = 2 * lastWordTime
	stop := make(chan struct{})
	app := startApp(t, func(c net.Conn) {
		for stopping := false; !stopping; {
			select {
			case <-time.After(interval):
			case <-stop: // between two messages
				stopping = true
			}
			_, _ = io.WriteString(c, "tick")
		}
		<-time.After(interval / 2)
		_, _ = io.WriteString(c, last)
	})
	p := startPipe(t, app, TCP)
	c := dialPipe(t, p)
	if halfCloses {
		_ = c.CloseWrite()
	}
	c.expect("ticktick")
	go func() {
		_, _ = io.Copy(io.Discard, c.r)
		_ = c.Close()
	}()
	cfg := drain.DefaultConfig()
	cfg.App, cfg.MinimumDrain, cfg.QuietTime, cfg.IdleGrace = drain.AppFinishes, 0, 0, 0
	report, err := drain.Termination{Plane: p, Config: cfg, Log: slog.New(slog.DiscardHandler), Watch: drain.Watcher{Phase: func(now drain.Phase) {
		if now == drain.Finishing {
			close(stop)
		}
	}}}.Run(t.Context())
	must.Do(t, err)
	return report
}
