package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Scene is the state of the pod at its SIGTERM.
type Scene string

// Scenes.
const (
	Request   Scene = "request"    // a request in flight, and ten more within the next second
	Idle      Scene = "idle"       // no connection
	KeepAlive Scene = "keep-alive" // a request in flight, and another client's idle connection
)

// Scenes returns all of them.
func Scenes() []Scene { return []Scene{Request, Idle, KeepAlive} }

// row is a peer in a scene.
type row struct {
	peer  Peer
	scene Scene
	delay time.Duration // of the request
	pod   *pod
	idle  *idleClient

	answer     answer
	lateLost   int
	began      time.Time // start of the pod's termination
	endings    []node.Ending
	unfinished bool // it was still there at the limit
	report     *strategy.Report
	allowance  time.Duration // how much later events may be on this machine

	gone atomic.Bool
}

func newRow(p Peer, s Scene, delay time.Duration) *row {
	return &row{peer: p, scene: s, delay: delay + rand.N(spread).Truncate(time.Millisecond)}
}

func (r *row) start(ctx context.Context, t *strategy.Env, dir string) (err error) {
	name := r.peer.Name + "-" + string(r.scene)
	if r.pod, err = startPod(ctx, t, r.peer, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if r.scene == KeepAlive {
		if r.idle, err = connectIdle(ctx, r.pod.address); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// run runs the scene, and returns when the pod is gone.
func (r *row) run(ctx context.Context, limit time.Duration) error {
	defer r.idle.hangUp()
	clients, giveUp := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer giveUp()
	if r.scene != Idle {
		before, err := node.Established()
		if err != nil {
			return err
		}
		url := "http://" + r.pod.address + "/delay/" + strconv.FormatFloat(r.delay.Seconds(), 'f', -1, 64)
		asking.Go(func() { r.answer = get(clients, url) })
		if err := strategy.AwaitInFlight(ctx, map[int]int{r.pod.port: before[r.pod.port]}); err != nil {
			return err
		}
	}
	ending, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r.began = time.Now()
	if r.scene == Request {
		asking.Go(func() { r.lateLost = lateClients(clients, r.pod.address) })
	}
	r.endings = node.Terminate(ending, r.pod.members, r.peer.grace)
	r.unfinished = errors.Is(ending.Err(), context.DeadlineExceeded) && ctx.Err() == nil
	r.gone.Store(true)
	r.pod.settle()
	asking.Wait() // the pod is gone
	if r.pod.report != nil {
		var err error
		if r.report, err = r.pod.report(); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// left is how much longer the request takes at the pod's SIGTERM.
func (r *row) left() time.Duration {
	if r.scene == Idle {
		return 0
	}
	return r.delay - r.began.Sub(r.answer.asked)
}

// lastByte is when the request ended, and with it the client's connection.
func (r *row) lastByte() time.Duration {
	if r.scene == Idle {
		return 0
	}
	return r.answer.last.Sub(r.began)
}

// stayed is how long the pod existed after that.
func (r *row) stayed() (d time.Duration) {
	for _, e := range r.endings {
		d = max(d, e.Gone.Sub(r.began))
	}
	return d
}

// killed reports whether a container got SIGKILL.
func (r *row) killed() bool {
	for _, e := range r.endings {
		if !e.Killed.IsZero() && !r.unfinished {
			return true
		}
	}
	return false
}

// lost counts requests: the slow one and the late ones.
func (r *row) lost() (lost, of int) {
	if r.scene == Idle {
		return 0, 0
	}
	lost, of = 0, 1
	if !r.answer.good() {
		lost++
	}
	if r.scene == Request {
		lost, of = lost+r.lateLost, of+lateRequests
	}
	return lost, of
}
