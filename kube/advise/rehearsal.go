package advise

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
)

// rehearsal is what the advice needs of docs/schema/rehearsal-service-v1.json.
type rehearsal struct {
	Schema        string   `json:"$schema"`
	App           string   `json:"app"`
	PropagationMS [2]int64 `json:"propagation_ms"`
	Requests      []struct {
		Request string `json:"request"`
		TookMS  int64  `json:"took_ms"`
	} `json:"requests"`
	Rows []struct {
		Strategy string         `json:"strategy"`
		Runs     []rehearsedRun `json:"runs"`
	} `json:"rows"`
}

type rehearsedRun struct {
	TermMS   int64     `json:"sigterm_ms"`
	GoneMS   int64     `json:"gone_ms"`
	EndedBy  string    `json:"ended_by"`
	Sendings []sending `json:"sendings"`
}

type sending struct {
	Request int    `json:"request"`
	OnNew   bool   `json:"on_new_pod"`
	FromMS  int64  `json:"from_ms"`
	ToMS    int64  `json:"to_ms"`
	Reason  string `json:"lost_by"`
}

// rehearsalSchema is the end of the schema's address: its version decides, wherever it is published.
const rehearsalSchema = "/rehearsal-service-v1.json"

// settled is how long after a stop signal a request is sent that an app which closes its listener no longer accepts.
const settled = 300 // ms

func isWithinDay(ms int64) bool { return ms >= 0 && ms <= (24*time.Hour).Milliseconds() }

// ReadRehearsal reads the JSON of lastcallctl rehearse service: its first row decides.
func ReadRehearsal(in io.Reader) (*Evidence, error) {
	var r rehearsal
	decoder := json.NewDecoder(io.LimitReader(in, maxInput))
	if err := decoder.Decode(&r); err != nil || !strings.HasSuffix(r.Schema, rehearsalSchema) {
		return nil, fmt.Errorf("it is not a result of lastcallctl rehearse service … -o json: must be JSON with a $schema that ends with %s", rehearsalSchema)
	}
	if len(r.Rows) == 0 || len(r.Rows[0].Runs) == 0 {
		return nil, fmt.Errorf("the rehearsal has no run")
	}
	row := r.Rows[0]
	if !isWithinDay(r.PropagationMS[1]) {
		return nil, fmt.Errorf("the rehearsal has a propagation delay of %d ms", r.PropagationMS[1])
	}
	e := &Evidence{Propagation: time.Duration(r.PropagationMS[1]) * time.Millisecond}
	var all []time.Duration
	latest := int64(0) // served by the old pod
	for _, run := range row.Runs {
		for _, s := range run.Sendings {
			if s.Request < 0 || s.Request >= len(r.Requests) {
				return nil, fmt.Errorf("the rehearsal has a request of kind %d, and %d kinds", s.Request, len(r.Requests))
			}
			took := r.Requests[s.Request].TookMS
			if took == 0 { // without an end
				continue
			}
			if s.Reason == "" {
				took = s.ToMS - s.FromMS
				if !s.OnNew {
					latest = max(latest, s.FromMS)
				}
			}
			if !isWithinDay(took) {
				return nil, fmt.Errorf("the rehearsal has a request that took %d ms", took)
			}
			all = append(all, time.Duration(took+1)*time.Millisecond) // whole ones, rounded down
		}
		if e.App == "" {
			e.App = run.reaction()
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the rehearsal has no requests with an end: streams take as long as their pod")
	}
	e.Tails, e.Source = Observed(all), fmt.Sprintf("%d requests of a rehearsal of %s", len(all), r.App)
	e.doubt("the requests are those that the rehearsal was given")
	if late := time.Duration(latest) * time.Millisecond; late > e.Propagation+time.Second/10 && e.App == course.Exits {
		e.doubt("clients keep their connections and use the old pod as long as it serves: the app must close them, since no sleep suffices for an app that exits at its stop signal")
	}
	if slices.ContainsFunc(r.Rows[0].Runs, func(r rehearsedRun) bool { return len(r.Sendings) >= 400 }) {
		e.doubt("a run lists no more than 400 of its requests")
	}
	return e, nil
}

// reaction is what the app did at its stop signal; empty: no request shows it.
func (r rehearsedRun) reaction() course.Reaction {
	var reaction course.Reaction
	for _, s := range r.Sendings {
		switch isServed := s.Reason == ""; {
		case s.OnNew || r.TermMS < 0:
		case isServed && s.FromMS > r.TermMS+settled && r.EndedBy == "SIGKILL":
			return course.Ignores
		case isServed && s.FromMS > r.TermMS+settled:
			return course.ServesOn
		case isServed && s.FromMS < r.TermMS && s.ToMS > r.TermMS+10:
			reaction = course.Finishes
		case !isServed && s.FromMS < r.TermMS && s.ToMS >= r.TermMS && reaction == "":
			reaction = course.Exits
		}
	}
	return reaction
}
