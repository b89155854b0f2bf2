package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AppEnd is an app's treatment of its connections at its SIGTERM.
type AppEnd int

const (
	AppAuto     AppEnd = iota // unknown
	AppFinishes               // it answers its requests, closes its connections and exits
	AppExits                  // it exits, and its requests are lost
)

var appEndNames = []string{"auto", "finishes", "exits"}

func (a AppEnd) String() string { return nameOf(a, "AppEnd", appEndNames) }

// MarshalText writes its name.
func (a AppEnd) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// ParseAppEnd reads auto, finishes or exits. An empty text is auto.
func ParseAppEnd(text string) (AppEnd, error) {
	i := slices.Index(appEndNames, text)
	if i < 0 && text != "" {
		return 0, fmt.Errorf("%q: must be one of %s", text, strings.Join(appEndNames, ", "))
	}
	return AppEnd(max(0, i)), nil
}

// TrialBefore is how long before the last call an app of AppAuto gets its SIGTERM, at most an eighth of the grace
// period. By then its opaque connections have outlived most of the grace period, so few would still end by themselves.
// With the default timers 5 s remain until SIGKILL, as after a hook without a sidecar, and an app that finishes answers
// most of its requests in that time.
const TrialBefore = 3 * time.Second

// Finish is how an app has ended connections that only it can end.
type Finish struct {
	After  Millis `json:"after_ms"` // from the beginning to the app's SIGTERM
	Opaque int    `json:"opaque"`   // such connections at that time
	OpaqueEnds

	// App is the app's behaviour that follows from this: "finishes", "exits", or "" if it shows neither.
	App string `json:"app,omitempty"`
}

// OpaqueEnds counts opaque connections by how the app has ended them.
type OpaqueEnds struct {
	Ended    uint64 `json:"ended,omitempty"`    // all of them
	Answered uint64 `json:"answered,omitempty"` // the app sent its last bytes just before: an answer, close_notify
	Dropped  uint64 `json:"dropped,omitempty"`  // by a reset, or after bytes of the client without an answer
}

// shows is the evidence. A few connections may end by chance just after an answer, or just after a request: neither
// shows anything while most show the opposite.
func (e OpaqueEnds) shows() string {
	switch {
	case e.Dropped*3 > e.Ended, e.Dropped > 0 && e.Answered*2 <= e.Ended:
		return AppExits.String()
	case e.Dropped*10 <= e.Ended && e.Answered*2 > e.Ended:
		return AppFinishes.String()
	}
	return ""
}

// freeOrLeft is free, or true when the rest can be left to the app.
func (r *run) freeOrLeft(now time.Time) (bool, time.Time) {
	if free, at := r.free(now); free || !at.IsZero() {
		return free, at
	}
	return r.isLeft(now)
}

// isLeft is true when only opaque connections are busy, and the app may get its SIGTERM for them.
func (r *run) isLeft(now time.Time) (bool, time.Time) {
	a := r.activity
	if !a.Known || a.Opaque == 0 || a.Busy > a.Opaque || r.report.Finish != nil || r.Config.App == AppExits {
		return false, never()
	}
	var at time.Time
	if a.Connections > a.Opaque {
		at = r.lastArrival.Add(r.Config.IdleGrace)
	}
	if r.Config.App == AppAuto {
		at = later(at, r.deadline().Add(-min(TrialBefore, r.Config.GracePeriod/8)))
	}
	return !now.Before(at), at
}

// leaveToApp gives the app its SIGTERM while opaque connections are open: only the app can end them between two
// requests. It returns when they have ended, or why not.
func (r *run) leaveToApp() reason {
	if r.requested.Container { // else the listeners stay open for the clients of a restart
		r.do("stop accepting", r.Plane.StopAccepting)
	}
	r.do("close idle connections", func(ctx context.Context) error { return r.Plane.CloseIdle(ctx, 0) })
	onlyOpaque := func(time.Time) (bool, time.Time) {
		return r.activity.Known && r.activity.Busy <= r.activity.Opaque, never()
	}
	if why := r.await(r.deadline, onlyOpaque); why != conditionMet {
		return why
	}
	r.beforeFinish = r.activity.OpaqueEnds
	r.report.Finish = &Finish{After: Millis(time.Since(r.start)), Opaque: r.activity.Opaque}
	r.Log.Info(lineFinishing, "opaque", r.activity.Opaque, "app", r.Config.App.String())
	r.enter(Finishing)
	return r.await(r.deadline, r.free)
}

// finished completes the report once the termination has ended.
func (f *Finish) finished(v Verdict) Verdict {
	if f == nil {
		return v
	}
	f.App = f.shows()
	if v == Clean && f.Dropped > 0 {
		return Cut
	}
	return v
}

// sentence is the part of the summary; empty for none.
func (f *Finish) sentence() string {
	if f == nil {
		return ""
	}
	text := fmt.Sprintf("the app's SIGTERM came after %s, with %d connections that only it can end", seconds(f.After),
		f.Opaque)
	switch {
	case f.Dropped > 0:
		text += fmt.Sprintf(": it ended %d, of them %d without an answer", f.Ended, f.Dropped)
	case f.Ended > 0:
		text += fmt.Sprintf(": it ended %d", f.Ended)
	}
	return text
}
