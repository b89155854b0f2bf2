package rollout

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Result is the outcome.
type Result struct {
	OK            bool  `json:"ok"` // lastcall lost nothing
	Requests      int   `json:"requests"`
	Rate          int   `json:"rate"`
	PropagationMS int64 `json:"propagation_ms"`
	GraceMS       int64 `json:"grace_ms"`
	TookMS        int64 `json:"took_ms"`
	Rows          []Row `json:"rows"`
}

// Row is the outcome of one strategy.
type Row struct {
	Strategy string `json:"strategy"`
	Words    string `json:"words"`
	Requests int    `json:"requests"`
	Failed   int    `json:"failed"`
	Gateway  int    `json:"failed_through_gateway"`
	Inside   int    `json:"failed_inside"`

	Kinds    map[traffic.Failure]int `json:"failed_by_kind"`
	Replaced int                     `json:"pods_replaced"`
	Killed   int                     `json:"pods_killed"`    // by SIGKILL
	StayedMS int64                   `json:"pods_stayed_ms"` // on average, from a pod's deletion to its end

	// Elsewhere is how often a client was refused and used another pod: no failure.
	Elsewhere int `json:"refused_and_sent_elsewhere"`
}

const ours = "lastcall"

func result(all []*deployment, o Options, took time.Duration) *Result {
	res := &Result{
		OK: true, Requests: o.Requests, Rate: o.Rate,
		PropagationMS: o.Propagation.Milliseconds(), GraceMS: o.Grace.Milliseconds(), TookMS: took.Milliseconds(),
	}
	for _, d := range all {
		row := d.row()
		if row.Strategy == ours && (row.Failed > 0 || row.Requests < o.Requests) {
			res.OK = false
		}
		res.Rows = append(res.Rows, row)
	}
	return res
}

func (d *deployment) row() Row {
	row := Row{
		Strategy: d.strategy.Name, Words: d.strategy.Words,
		Kinds: make(map[traffic.Failure]int), Replaced: int(d.replaced.Load()), Killed: int(d.killed.Load()),
	}
	if row.Replaced > 0 {
		row.StayedMS = time.Duration(d.stayed.Load() / int64(row.Replaced)).Milliseconds()
	}
	for i, c := range d.counts {
		asked, failed := c.failed()
		row.Requests += asked
		row.Failed += failed
		if i == 0 {
			row.Gateway = failed
		} else {
			row.Inside = failed
		}
		for kind, n := range c.failures {
			row.Kinds[kind] += n
		}
		row.Elsewhere += d.clients[i].Retries()
	}
	return row
}

// Passed reports whether every row is as expected.
func (r *Result) Passed() bool { return r.OK }
