package plan

import (
	"encoding/json"
	"io"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
)

// WriteJSON prints plans for programs: an array, all times in milliseconds since the deletion. docs/plan.md lists the
// fields.
func WriteJSON(w io.Writer, plans []*Plan) error {
	out := make([]jsonPlan, 0, len(plans))
	for _, p := range plans {
		out = append(out, p.json())
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

type jsonPlan struct {
	Name       string          `json:"name"`
	Way        Way             `json:"way"`
	Mesh       string          `json:"mesh,omitempty"`
	Lastcall   bool            `json:"lastcall"`
	GraceMS    int64           `json:"grace_ms"`
	LastCallMS int64           `json:"last_call_ms,omitempty"`
	RequestMS  int64           `json:"request_ms"`
	LongestMS  int64           `json:"longest_request_served_ms"`
	AcceptsMS  int64           `json:"idle_pod_accepts_ms"`
	EmptyMS    int64           `json:"idle_pod_gone_ms"`
	GoneMS     int64           `json:"gone_ms"`
	Killed     bool            `json:"killed"`
	Containers []jsonContainer `json:"containers"`
	Phases     []jsonPhase     `json:"phases"`
	Requests   []jsonRequest   `json:"requests"`
	Notes      []string        `json:"notes,omitempty"`
}

type jsonContainer struct {
	Name       string          `json:"name"`
	Role       course.Role     `json:"role"`
	Native     bool            `json:"native"`
	Assumed    bool            `json:"assumed"`
	PreStop    course.HookKind `json:"pre_stop"`
	HookText   string          `json:"pre_stop_text,omitempty"`
	StopSignal string          `json:"stop_signal"`
	Reaction   course.Reaction `json:"reaction"`
	SignalMS   int64           `json:"signal_ms"`
	KillMS     int64           `json:"kill_ms"`
	GoneMS     int64           `json:"gone_ms"`
	Settings   []jsonSetting   `json:"settings,omitempty"`
}

type jsonSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

type jsonPhase struct {
	FromMS   int64  `json:"from_ms"`
	ToMS     int64  `json:"to_ms"`
	Why      string `json:"why"`
	New      string `json:"new_connections"`
	InFlight string `json:"in_flight"`
	Idle     bool   `json:"waits_for_nothing"`
}

type jsonRequest struct {
	ArrivesMS int64  `json:"arrives_ms"`
	Served    bool   `json:"served"`
	Result    string `json:"result"`
	AtMS      int64  `json:"at_ms"`
	Why       string `json:"why,omitempty"`
}

func (p *Plan) json() jsonPlan {
	ms := time.Duration.Milliseconds
	out := jsonPlan{
		Name: p.Name, Way: p.Way, Mesh: p.Mesh, Lastcall: p.Lastcall, GraceMS: ms(p.GracePeriod()), LastCallMS: ms(p.LastCall), RequestMS: ms(p.Options.Request),
		LongestMS: ms(p.Longest), AcceptsMS: ms(p.Accepts), EmptyMS: ms(p.Empty), GoneMS: ms(p.Course.Gone), Killed: p.Course.Killed, Notes: p.Notes,
	}
	for i, c := range p.Containers {
		m := p.Course.Containers[i]
		j := jsonContainer{c.Name, c.Role, c.Native, c.Assumed, c.PreStop.Kind, c.PreStop.Text, c.StopSignal.Value, c.Reaction, ms(m.Signal), ms(m.Kill), ms(m.Gone), nil}
		for _, s := range c.Settings {
			j.Settings = append(j.Settings, jsonSetting(s))
		}
		out.Containers = append(out.Containers, j)
	}
	for _, f := range p.Phases {
		out.Phases = append(out.Phases, jsonPhase{ms(f.From), ms(f.To), f.Why, f.New, f.InFlight, f.IsIdle})
	}
	for _, a := range p.Fates {
		out.Requests = append(out.Requests, jsonRequest{ms(a.At), a.IsServed, a.Result, ms(a.Fate.At), a.Why})
	}
	return out
}
