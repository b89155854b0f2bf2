// Package mesh is the preStop hook in a pod whose proxy is another's Envoy, such as Istio's: lastcall wait --envoy. It
// attaches to that Envoy for as long as the hook runs, and needs no container and no port of its own.
//
// The hook of Envoy's own container (Sidecar) drains Envoy, closes its inbound listeners, and ends it when the app has
// exited. An app's hook only watches, because the kubelet also runs it when it restarts that container alone: an Envoy
// that has been drained closes each connection after one response until its container is restarted.
package mesh

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// Options describe the pod.
type Options struct {
	envoy.Options // of the Envoy that runs: its admin API, and the ports that do not count

	PilotAgent uint16 // status port of Istio's agent, which is sent POST /drain; 0: not sent
	Sidecar    bool   // the hook is that of Envoy's container
	NoApp      bool   // the pod has no app, as a gateway's

	// Fallback is watched when Envoy's admin API cannot be used. Without Ports, every listener of the pod is, and every
	// open connection is busy.
	Fallback sockets.Options

	// With are drained together with Envoy.
	With []drain.DataPlane

	// App, of an app's hook, has the probes by which it distinguishes a restart of its container; nil: none.
	App *hook.App

	// Stay starts a process that holds the connection for as long as its container runs.
	Stay func(net.Conn) error
}

// Hook is one run of the hook.
type Hook struct {
	o          Options
	config     drain.Config
	began      time.Time
	admin      *envoy.Admin
	usable     bool // Envoy's admin API has answered
	conn       *appConn
	containers *containers
	others     func() (int, error) // sockets of the pod's other containers
}

// New begins a hook: the other hooks of the pod find it.
func New(c drain.Config, o Options) (*Hook, error) {
	admin, err := envoy.NewAdmin(o.Admin)
	if err != nil {
		return nil, err
	}
	o.Attach, o.Hook, o.WatchOnly = true, true, !o.Sidecar
	h := &Hook{o: o, config: c, began: time.Now(), admin: admin, others: otherSockets}
	switch {
	case !o.Sidecar:
		h.conn = connectToSidecar(socketOf(o.Admin))
	case !o.NoApp:
		h.containers = acceptContainers(socketOf(o.Admin), o.Log)
	}
	return h, nil
}

// attachTime bounds the first answer of Envoy's admin API, and POST /drain. It is part of the minimum drain. On a node
// with 20 busy processes for each core Envoy needed two seconds.
const attachTime = 4 * time.Second

// Wait returns when the app may receive its SIGTERM.
func (h *Hook) Wait(ctx context.Context) (drain.Report, error) {
	limit, _ := h.config.Limit()
	short, cancel := context.WithTimeout(ctx, min(attachTime, limit/4))
	defer cancel()
	agent := make(chan error, 1)
	go func() { agent <- h.drainByAgent(short) }()
	var faults []string
	fault := func(text string) {
		h.o.Log.Warn(text)
		faults = append(faults, text)
	}
	var plane drain.DataPlane
	attached, err := envoy.Start(short, h.o.Options)
	if h.usable = err == nil; h.usable {
		plane = attached
		defer attached.Shut()
	} else {
		var what string
		plane, what = h.fallBack()
		fault(fmt.Sprintf("cannot use Envoy's admin API: %v; %s", err, what))
	}
	c := hook.Rest(h.config, time.Since(h.began)) // the time that has passed is the pod's
	r, err := hook.Wait(ctx, drain.Join(append([]drain.DataPlane{plane}, h.o.With...)...), c, h.o.App, h.o.Log)
	if h.usable {
		if text := attached.Hidden(); text != "" {
			faults = append(faults, text)
		}
	}
	cancel()
	if err := <-agent; err != nil {
		fault(err.Error())
	}
	r.Faults = append(faults, r.Faults...)
	return r, err
}

// drainByAgent makes Istio's agent drain Envoy, and end at once at its SIGTERM.
func (h *Hook) drainByAgent(ctx context.Context) error {
	if h.o.PilotAgent == 0 {
		return nil
	}
	agent, err := envoy.NewAdmin(net.JoinHostPort("127.0.0.1", strconv.Itoa(int(h.o.PilotAgent))))
	if err == nil {
		err = agent.Post(ctx, "/drain")
	}
	if err != nil {
		return fmt.Errorf("drain by Istio's agent: %w", err)
	}
	return nil
}

// fallBack is the data plane without Envoy's admin API, and its description. Without ports it watches every listener of
// the pod. Their protocols are unknown, so an idle connection holds the hook, until the deadline at most: it would be
// worse to cut a request.
func (h *Hook) fallBack() (drain.DataPlane, string) {
	o := h.o.Fallback
	if len(o.Ports) > 0 {
		return sockets.New(o), "watching the app's ports instead"
	}
	o.Ports, o.Opaque = h.everyPort(), true
	return sockets.New(o), fmt.Sprintf("treating every open connection to ports %v as busy, until the deadline; set --ports", o.Ports)
}

// everyPort lists the ports with a listener, without those of the mesh itself.
func (h *Hook) everyPort() (ports []uint16) {
	not := slices.Concat(envoy.Infrastructure, h.o.LeaveOut,
		[]uint16{istio.OutboundPort, istio.AdminPort, h.o.PilotAgent})
	if _, text, err := net.SplitHostPort(h.o.Admin); err == nil {
		n, _ := strconv.ParseUint(text, 10, 16)
		not = append(not, uint16(n))
	}
	if table, err := sockdiag.OpenTable(); err == nil {
		defer table.Close()
		listeners, _ := table.Listeners()
		for _, s := range listeners {
			if port := s.Local.Port(); !slices.Contains(not, port) {
				ports = append(ports, port)
			}
		}
	}
	if len(ports) == 0 {
		return []uint16{istio.InboundPort}
	}
	return slices.Compact(slices.Sorted(slices.Values(ports)))
}

// End is called after the report. An app's hook makes Envoy write its access log, because Istio's agent ends Envoy by
// SIGKILL, which loses the lines of the last second. Envoy's own waits until the app has exited, so that its outbound
// connections work to the end, and then ends Envoy, which writes its whole log.
func (h *Hook) End(ctx context.Context) {
	if h.conn != nil {
		if h.usable {
			short, cancel := context.WithTimeout(ctx, timers.EnvoyEnd)
			defer cancel()
			if err := h.admin.Post(short, "/reopen_logs"); err != nil {
				h.o.Log.Warn("cannot make Envoy write its access log", "error", err)
			}
		}
		if err := h.conn.leave(h.o.Stay); err != nil {
			h.o.Log.Warn("the sidecar does not know when this container ends", "error", err)
		}
		return
	}
	if h.containers != nil {
		h.awaitApp(ctx, h.endBy())
		defer h.containers.close()
	}
	if !h.usable {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timers.EnvoyEnd)
	defer cancel()
	if err := h.admin.QuitAndWait(ctx); err != nil {
		h.o.Log.Warn("cannot end Envoy", "error", err)
	}
}

// endBy is when Envoy has to be ended, before the kubelet's SIGKILL.
func (h *Hook) endBy() time.Time {
	return h.began.Add(h.config.GracePeriod - min(timers.EnvoyEnd, h.config.GracePeriod/8))
}

const (
	appLook = 20 * time.Millisecond  // how often awaitApp looks
	appGone = 100 * time.Millisecond // how long the other containers must have had no socket
)

// awaitApp returns when the pod's app has exited: the containers whose hooks have come have ended, and no other
// container has a socket. A gateway's pod has neither.
func (h *Hook) awaitApp(ctx context.Context, by time.Time) {
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	began := time.Now()
	h.o.Log.Info("inbound drained; outbound connections stay open until the app exits")
	var seen time.Time
	var running, connected int32
	var sockets int
	var err error
	if poll.Until(ctx, appLook, func() bool {
		running, connected = h.containers.running.Load(), h.containers.connected.Load()
		if sockets, err = h.others(); sockets > 0 {
			seen = time.Now()
		}
		return running == 0 && time.Since(seen) >= appGone
	}) != nil {
		h.o.Log.Warn("app still running at the deadline; ending Envoy", "containers", running, "sockets", sockets)
		return
	}
	if err != nil && connected == 0 {
		h.o.Log.Warn("cannot see whether the app still runs; not waiting for it", "error", err,
			"hint", "add lastcall wait --envoy as the preStop hook of every app container")
	}
	h.o.Log.Info("app exited", "containers", connected, "after", time.Since(began).Round(time.Millisecond))
}
