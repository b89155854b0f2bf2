package model

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Load is what clients send to one pod, and how late they learn of its end.
type Load struct {
	Rate        float64       // requests per second
	Durations   Durations     // how long they take
	Propagation time.Duration // each client learns of the end after a random time up to this
	Clients     int           // with a delay each; 0 is 2, such as a gateway and the other pods
}

// Ending is what became of the requests that met the end of a pod.
type Ending struct {
	Met     float64 // requests in flight at the deletion, or sent after it
	Cut     float64 // lost in flight
	Failed  float64 // answered 503 by a proxy whose app has gone
	Refused float64 // at TCP: the client uses another pod
	Stayed  time.Duration
	Killed  bool
}

// Lost is the number of lost requests.
func (e Ending) Lost() float64 { return e.Cut + e.Failed }

// maxSample is how many requests of one pod are simulated; of more, each stands for several.
const maxSample = 300

// end simulates the end of one pod. share is what the pod has of l.Rate at a time relative to its deletion: 2 if it shares the
// load with half as many pods. Requests are simulated as for 1, and each stands for as many.
func end(t *termination.Termination, l Load, share func(at time.Duration) float64, r *rand.Rand) Ending {
	type request struct {
		at, end time.Duration
		weight  float64
	}
	clients := l.Clients
	if clients == 0 {
		clients = 2
	}
	longest := l.Durations.Longest()
	expected := l.Rate * (longest + l.Propagation).Seconds()
	weight := max(1, expected/maxSample)
	rate := l.Rate / weight / float64(clients)
	var all []request
	for range clients {
		until := time.Duration(0)
		if l.Propagation > 0 {
			until = time.Duration(r.Int64N(int64(l.Propagation)))
		}
		if rate <= 0 {
			continue
		}
		for at := -longest; ; {
			at += time.Duration(r.ExpFloat64() / rate * float64(time.Second))
			if at > until {
				break
			}
			if end := at + l.Durations.draw(r); end > 0 {
				all = append(all, request{at, end, weight * share(at)})
			}
		}
	}
	slices.SortFunc(all, func(a, b request) int { return int(a.at - b.at) })
	var e Ending
	var tr termination.Traffic
	var accepted []request
	c := t.Course(tr)
	for _, q := range all {
		e.Met += q.weight
		if q.at >= 0 && q.at >= c.Accepts {
			if c.Refusal == termination.Unavailable {
				e.Failed += q.weight
			} else {
				e.Refused += q.weight
			}
			continue
		}
		accepted = append(accepted, q)
		tr.Busy, tr.Last = max(tr.Busy, q.end), max(tr.Last, q.at)
		c = t.Course(tr)
	}
	for _, q := range accepted {
		if q.end > c.Cut {
			e.Cut += q.weight
		}
	}
	e.Stayed, e.Killed = c.Gone, c.Killed
	return e
}

// Share is the share of the requests meeting a pod's end that are lost, over n pods.
func Share(t *termination.Termination, l Load, n int, seed uint64) (share float64, met float64) {
	r := rand.New(rand.NewPCG(seed, 1))
	lost := 0.0
	for range n {
		e := end(t, l, func(time.Duration) float64 { return 1 }, r)
		met += e.Met
		lost += e.Lost() + e.Refused // a client that does not retry loses these too
	}
	if met == 0 {
		return 0, 0
	}
	return lost / met, met
}
