package drain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

// TestReport is a whole one, as the termination message has it.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := dt.New(dt.Script{
			Clients: []dt.Client{dt.Get("/delay/60", -1500*time.Microsecond, time.Minute), dt.Get("/", 3*s, s), dt.TCP(-s, time.Hour)},
			Faults:  []dt.Fault{{Method: dt.StopAccepting, Err: errRefused}, {Method: dt.Drain, Err: errRefused}},
		})
		defer plane.Stop()
		var phases []drain.Phase
		var activities []string
		watch := drain.Watcher{
			Phase: func(p drain.Phase) { phases = append(phases, p) },
			Activity: func(a drain.Activity) {
				activities = append(activities, fmt.Sprintf("%d/%d/%d", a.Connections, a.Busy, a.Arrivals))
			},
		}
		report, err := drain.Termination{Plane: plane, Config: drain.DefaultConfig(), Log: slog.New(slog.DiscardHandler), Watch: watch}.Run(t.Context())
		must.Do(t, err)

		want := `{
  "verdict": "cut",
  "mode": "exit-on-zero",
  "trigger": "SIGTERM",
  "began": "2000-01-01T00:00:00Z",
  "duration_ms": 28000,
  "phases": [
    {
      "phase": "draining",
      "ms": 5000
    },
    {
      "phase": "waiting",
      "ms": 23000
    },
    {
      "phase": "last call",
      "ms": 0
    }
  ],
  "late": 2,
  "held_by": [
    {
      "peer": "192.0.2.3:40000",
      "protocol": "tcp",
      "age_ms": 6000
    },
    {
      "peer": "192.0.2.1:40000",
      "protocol": "http/1.1",
      "request": "GET /delay/60",
      "age_ms": 5002
    }
  ],
  "open": [
    {
      "peer": "192.0.2.3:40000",
      "protocol": "tcp",
      "age_ms": 29000,
      "ending": "fin"
    },
    {
      "peer": "192.0.2.1:40000",
      "protocol": "http/1.1",
      "request": "GET /delay/60",
      "age_ms": 28002,
      "ending": "503"
    }
  ],
  "faults": [
    "Error in invoking drain listeners endpoint: connection refused"
  ]
}`
		report.Began = report.Began.UTC()
		if text, err := json.MarshalIndent(report, "", "  "); err != nil || string(text) != want {
			t.Errorf("report: %v\n got %s\nwant %s", err, text, want)
		}
		if want := []drain.Phase{drain.Draining, drain.Waiting, drain.LastCall, drain.Done}; !slices.Equal(phases, want) {
			t.Errorf("the watcher has seen the phases %v, want %v", phases, want)
		}
		if want := []string{"2/2/3", "3/3/5", "2/2/5"}; !slices.Equal(activities, want) {
			t.Errorf("the watcher has seen the activities %q, want %q", activities, want)
		}
	})
}

func TestMillis(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0", 1499 * time.Microsecond: "1", 1500 * time.Microsecond: "2", time.Minute: "60000"} {
		text, err := json.Marshal(drain.Millis(d))
		if err != nil || string(text) != want {
			t.Errorf("%v is %s, %v; want %s", d, text, err, want)
		}
		var back drain.Millis
		if err := json.Unmarshal(text, &back); err != nil || time.Duration(back).Milliseconds() != d.Round(ms).Milliseconds() {
			t.Errorf("%s is read as %v, %v", text, time.Duration(back), err)
		}
	}
	var m drain.Millis
	if err := json.Unmarshal([]byte(`"5s"`), &m); err == nil {
		t.Errorf("a text is read as %v milliseconds", m)
	}
}

func TestNames(t *testing.T) {
	var b bytes.Buffer
	for p := drain.Serving; p <= drain.Done+1; p++ {
		fmt.Fprint(&b, p, ", ")
	}
	for sig := drain.Terminate; sig <= drain.BackgroundFailed+1; sig++ {
		fmt.Fprint(&b, sig, ", ")
	}
	for m := drain.ExitOnZero; m <= drain.Fixed+1; m++ {
		fmt.Fprint(&b, m, ", ")
	}
	want := "serving, draining, waiting, finishing, last call, drained, done, Phase(7), " +
		"SIGTERM, SIGINT, hook, app hook, notice, quitquitquit, app exit, /drain, deadline, " +
		"hook, context, shutdown, server ended, background function failed, Signal(14), " +
		"exit-on-zero, istio-exit-on-zero, fixed, Mode(3), "
	if b.String() != want {
		t.Errorf("names\n got %s\nwant %s", b.String(), want)
	}
}

// TestRaced counts what has raced since the drain began, not before it.
func TestRaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := dt.New(dt.Script{Clients: []dt.Client{dt.Get("/delay/7", -s, 7*s)}})
		defer plane.Stop()
		log := new(bytes.Buffer)
		file := filepath.Join(t.TempDir(), "termination-log")
		r, err := drain.Termination{Plane: racing{plane, time.Now()}, Config: drain.DefaultConfig(), Log: slog.New(slog.DiscardHandler)}.Run(t.Context())
		must.Do(t, err)
		if r.Verdict != drain.Clean || r.Raced != 2 {
			t.Errorf("%+v, want clean with 2 races", r)
		}
		r.Publish(slog.New(slog.NewTextHandler(log, nil)), file)
		if logged, _ := os.ReadFile(file); !strings.Contains(string(logged), `"raced":2`) || !strings.Contains(log.String(), " raced=2") {
			t.Errorf("%s\n%s", log, logged)
		}
	})
}

// racing is a plane on which five connections have raced before the drain, and two
// more do when the minimum drain has passed.
type racing struct {
	*dt.Plane
	began time.Time
}

func (p racing) Activity(ctx context.Context) (drain.Activity, error) {
	a, err := p.Plane.Activity(ctx)
	if a.Raced = 5; time.Since(p.began) >= 5*s {
		a.Raced = 7
	}
	return a, err
}
