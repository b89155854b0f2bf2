package agent

import (
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/live"
	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// lookTime limits one look at the data plane.
const lookTime = 2 * time.Second

// state is what the agent is doing at this moment.
func (s *status) state() live.State {
	now := s.a.phases.snapshot()
	state := live.State{At: time.Now(), Phase: now.phase.String(), Mode: s.a.Settings.Mode().String()}
	state.Host, _ = os.Hostname()
	if !now.up || now.starts {
		state.Phase = live.Starting
	}
	if now.draining {
		state.Drain = &live.Drain{Took: drain.Millis(now.duration), Kill: drain.Millis(now.remaining)}
		if limit, isLimited := now.cfg.Limit(); isLimited {
			left := drain.Millis(limit - now.duration)
			state.Drain.Limit = &left
		}
	}
	if plane := s.metrics.plane.Load(); plane != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lookTime)
		defer cancel()
		state.Connections = connectionsOf(ctx, *plane)
		state.Holding, _ = (*plane).Open(ctx, live.MostHolding)
	}
	return state
}

// connectionsOf counts the connections of a data plane; nil if they are unknown. Only the pipe knows their protocols.
func connectionsOf(ctx context.Context, plane drain.DataPlane) []live.Connections {
	p, isPipe := plane.(*pipe.Pipe)
	if !isPipe {
		now, err := plane.Activity(ctx)
		if err != nil || !now.Known {
			return nil
		}
		return []live.Connections{{Busy: now.Busy, Idle: now.Connections - now.Busy}}
	}
	busy, idle := p.Protocols()
	names := maps.Clone(busy)
	maps.Copy(names, idle)
	out := []live.Connections{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, live.Connections{Protocol: name, Busy: busy[name], Idle: idle[name]})
	}
	return out
}
