package rollout

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// mix is the load of a service: mostly fast requests, some slow ones, some with a body; 0.25 s on average.
var mix = []struct {
	percent int
	make    func() traffic.Request
}{
	{40, get("/get")},
	{14, get("/bytes/2048")},
	{8, get("/bytes/65536")},
	{8, get("/stream/20")},
	{5, func() traffic.Request {
		return traffic.Request{Method: "POST", Path: "/anything", Body: "what a form would send"}
	}},
	{14, func() traffic.Request {
		return traffic.Request{Method: "GET", Path: fmt.Sprintf("/delay/%.2f", 0.05+rand.Float64()/2)}
	}},
	{5, get("/delay/1")},
	{2, get("/drip?duration=2&numbytes=20&delay=0")},
	{2, get("/delay/3")},
	{2, get("/delay/5")},
}

func get(path string) func() traffic.Request {
	return func() traffic.Request { return traffic.Request{Method: "GET", Path: path} }
}

func pick() traffic.Request {
	n := rand.IntN(100)
	for _, m := range mix {
		if n -= m.percent; n < 0 {
			return m.make()
		}
	}
	return mix[0].make()
}

// count has the results of one client.
type count struct {
	mu       sync.Mutex // guards what follows
	asked    int
	failures map[traffic.Failure]int
}

func (c *count) note(f traffic.Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f == traffic.Stopped {
		return
	}
	c.asked++
	if f != "" {
		if c.failures == nil {
			c.failures = make(map[traffic.Failure]int)
		}
		c.failures[f]++
	}
}

func (c *count) failed() (asked, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.failures {
		failed += n
	}
	return c.asked, failed
}

// load sends n requests at rate per second, in turn by each client, and returns when the last one has ended.
func load(ctx context.Context, n, rate int, clients []*traffic.Client, counts []*count) {
	var flying sync.WaitGroup
	defer flying.Wait()
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range n {
		// Each at its own time from the start: a late one does not delay the next.
		timer.Reset(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		who := i % len(clients)
		r := pick()
		flying.Go(func() { counts[who].note(clients[who].Do(ctx, r).Failure) })
	}
}
