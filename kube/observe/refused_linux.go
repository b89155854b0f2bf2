package observe

import (
	"context"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

const (
	nodePause = 250 * time.Millisecond // between readings of the node's reports
	nodeKeep  = time.Minute            // refused connections of the node are kept for this long,
	maxNode   = 1 << 14                // and at most so many
)

// refusals shows which connections of a node's own processes were refused. These are the kubelet's probes, unless
// clients use the node's addresses, too:
//
//	node's namespace    SYN →             a socket is destroyed that knows the address of the pod
//	pod's namespace           → ← RST     one more reset, whose number is all that shows
type refusals struct {
	watch *sockdiag.Watch

	mu      sync.Mutex // guards the fields below
	read    time.Time  // until when all reports have been read
	refused []observe.Refusal
	lost    time.Time // when reports were missing last
}

// watchRefusals follows the network namespace with this path until ctx ends. It needs what Open needs.
func watchRefusals(ctx context.Context, path string) (*refusals, error) {
	n, many := new(refusals), make(chan struct{}, 1)
	err := sockdiag.In(path, func() (err error) {
		n.watch, err = sockdiag.WatchAll(0, func() { sockdiag.Notify(many) })
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		defer n.watch.Close()
		for clock := time.NewTicker(nodePause); ; {
			select {
			case <-clock.C:
			case <-many:
			case <-ctx.Done():
				clock.Stop()
				return
			}
			n.mu.Lock()
			n.collectLocked()
			n.mu.Unlock()
		}
	}()
	return n, nil
}

func (n *refusals) collectLocked() {
	read := time.Now()
	n.watch.Receive()
	sockets, lost := n.watch.Ended()
	for _, s := range sockets {
		// A reset in answer to the SYN.
		if s.Remote.Port() != 0 && s.Acked == 0 && s.Received == 0 && s.EmptyReceived == 1 {
			n.refused = append(n.refused, observe.Refusal{To: s.Remote, After: n.read, At: s.Ended})
		}
	}
	n.read = read
	now, old := time.Now(), max(0, len(n.refused)-maxNode)
	if lost || old > 0 {
		n.lost = now
	}
	for old < len(n.refused) && now.Sub(n.refused[old].At) > nodeKeep {
		old++
	}
	n.refused = n.refused[old:]
}

// since returns the connections that were refused after a moment, until another one. known is false if some are
// missing.
func (n *refusals) since(at time.Time) (all []observe.Refusal, until time.Time, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.collectLocked()
	for _, r := range n.refused {
		if r.At.After(at) {
			all = append(all, r)
		}
	}
	until = time.Now()
	return all, until, until.Sub(n.lost) > nodeKeep
}
