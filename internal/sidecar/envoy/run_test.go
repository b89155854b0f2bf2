package envoy

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
)

// soon is a termination that ends as soon as nothing is busy. Its last call comes so late
// that a test which sees it has failed, however slow the machine is.
var soon = drain.Config{
	MinimumDrain: 100 * time.Millisecond,
	IdleGrace:    50 * time.Millisecond,
	GracePeriod:  40 * time.Second,
	Margin:       time.Second,
	PollInterval: 20 * time.Millisecond,
}

// cutSoon is soon with a last call after 3 s, for tests that wait for it.
var cutSoon = func() drain.Config {
	c := soon
	c.GracePeriod = 4 * time.Second
	return c
}()

// termination is a drain.Termination that has begun and not ended.
type termination struct {
	t       *testing.T
	cfg     drain.Config
	began   time.Time
	waiting chan struct{} // closed when the minimum drain is complete
	report  chan drain.Report
	log     *logstest.Buffer
}

func terminate(t *testing.T, p *Plane, log *logstest.Buffer, cfg drain.Config) *termination {
	o := &termination{t: t, cfg: cfg, began: time.Now(), waiting: make(chan struct{}), report: make(chan drain.Report, 1), log: log}
	done := make(chan struct{})
	go func() {
		defer close(done)
		report, err := drain.Termination{
			Plane: p, Config: cfg, Log: slog.New(slog.NewTextHandler(log, nil)),
			Watch: drain.Watcher{Phase: func(phase drain.Phase) {
				if phase == drain.Waiting {
					close(o.waiting)
				}
			}},
		}.Run(ctx)
		if err != nil {
			t.Error(err)
		}
		o.report <- report
	}()
	t.Cleanup(func() { <-done })
	return o
}

func (r *running) terminate(cfg drain.Config) *termination {
	return terminate(r.t, r.Plane, r.log, cfg)
}

// held is a termination that something in flight holds.
func (r *running) held() *termination {
	r.t.Helper()
	o := r.terminate(soon)
	o.stillThere(r.t)
	return o
}

// endsWith reads the last responses of connections, and closes them: the termination ends.
func (o *termination) endsWith(conns ...*loadtest.Kept) {
	o.t.Helper()
	for _, c := range conns {
		if _, body := c.Answer(o.t); body != "done" {
			o.t.Error(body)
		}
		_ = c.Close()
	}
	o.want(o.t, drain.Clean)
}

// stillThere waits until only activity holds the end, and a little more.
func (o *termination) stillThere(t *testing.T) {
	t.Helper()
	select {
	case <-o.waiting:
	case <-time.After(patience):
		t.Fatalf("the minimum drain does not end\n%s", o.log)
	}
	select {
	case report := <-o.report:
		t.Fatalf("ended early: %+v\n%s", report, o.log)
	case <-time.After(4 * settle): // longer than an answer has to stand
	}
}

// want waits for the end. That it comes within the grace period is drain's own promise, and
// tested there in virtual time.
func (o *termination) want(t *testing.T, verdict drain.Verdict, lines ...string) drain.Report {
	t.Helper()
	select {
	case report := <-o.report:
		if report.Verdict != verdict {
			t.Errorf("verdict %s; want %s: %+v\n%s", report.Verdict, verdict, report, o.log)
		}
		for _, line := range lines {
			isFault := slices.ContainsFunc(report.Faults, func(f string) bool { return strings.Contains(f, line) })
			if !isFault && !strings.Contains(o.log.String(), line) {
				t.Errorf("%q is not logged: %+v\n%s", line, report, o.log)
			}
		}
		return report
	case <-time.After(o.cfg.GracePeriod + patience):
		t.Fatalf("no end\n%s", o.log)
	}
	panic("unreachable")
}
