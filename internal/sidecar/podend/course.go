package podend

import (
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

// Traffic is the load on which the end of a pod depends. Times are since the deletion.
type Traffic struct {
	// Busy is when the last request in flight would end if nothing cut it; 0 for none.
	Busy time.Duration

	// Last is when the last connection or request arrived; 0 or less: none since the deletion.
	Last time.Duration

	// Idle: another client holds an idle kept-alive connection.
	Idle bool

	// Polls is how soon polls notice an event.
	Polls Polls
}

// Polls is how soon polls notice an event.
type Polls int

const (
	Counted Polls = iota // at the first one after it, counted from the stop signal
	Early                // it happens just before one
	Late                 // it happens just after one
)

// never is later than each SIGKILL.
const never = 1 << 62

// Moments are the events of one container, since the deletion.
type Moments struct {
	HookEnds time.Duration
	Signal   time.Duration // its stop signal
	Kill     time.Duration // SIGKILL, if it still exists
	Cut      time.Duration // when it ends requests in flight
	Gone     time.Duration
	Killed   bool
}

// Refusal is the end of a connection that comes too late.
type Refusal string

const (
	Refused     Refusal = "refused" // at TCP: safe to retry
	Unavailable Refusal = "503"     // a proxy's, whose app has gone
	BadGateway  Refusal = "502"     // a container's, whose other container has gone
	NoClients   Refusal = "none"    // there is none: no client connects to a worker
)

// Course is how a pod ends under given traffic. Times are since the deletion.
type Course struct {
	// Containers are in the order of Pod.Containers.
	Containers []Moments

	// Accepts is until when new connections and requests are served; Refusal follows.
	Accepts time.Duration
	Refusal Refusal

	// Cut is when requests in flight are ended; CutBy describes the cause.
	Cut   time.Duration
	CutBy string

	Gone   time.Duration // the pod's last container
	Killed bool          // by SIGKILL
}

// Course computes how the pod ends under tr. What is unknown is taken at its worst for clients.
func (p *Pod) Course(tr Traffic) Course {
	p = p.Stopped()
	c := Course{Containers: make([]Moments, len(p.Containers)), Accepts: -1, Cut: -1}
	apps := time.Duration(0) // when all ordinary apps have gone
	for pass := range 3 {
		before := c.Gone
		for i := range p.Containers {
			k := &p.Containers[i]
			if pass != k.pass() {
				continue
			}
			m := p.moments(k, tr, apps, before)
			c.Containers[i] = m
			c.Gone = max(c.Gone, m.Gone)
			c.Killed = c.Killed || m.Killed
			if k.Native {
				before = c.Gone // one after the other
			}
		}
		if pass == 0 { // a proxy has no requests in flight that an app has ended
			apps = c.Gone
			for i := range p.Containers {
				if k := &p.Containers[i]; k.pass() == 0 && (k.Role == App || k.Role == Behind || k.Role == Worker) {
					tr.Busy = min(tr.Busy, k.cut(c.Containers[i]))
				}
			}
		}
	}
	for i := range p.Containers {
		p.limit(&c, &p.Containers[i], &c.Containers[i], tr)
	}
	has := func(role Role) bool {
		return slices.ContainsFunc(p.Containers, func(k Container) bool { return k.Role == role })
	}
	if has(Worker) && !has(App) { // whatever its proxy accepts
		c.Accepts, c.Refusal = 0, NoClients
	}
	return c
}

// pass is the order of computation: apps, ordinary proxies, which may wait for the apps, native sidecars.
func (k *Container) pass() int {
	switch {
	case k.Native:
		return 2
	case k.Role == Proxy:
		return 1
	}
	return 0
}

// cut is when an app ends its requests in flight.
func (k *Container) cut(m Moments) time.Duration {
	if k.isGoneAtOnce() || k.Reaction == Reloads {
		return m.Signal
	}
	if k.Reaction == Finishes && k.isLimited() {
		return min(m.Kill, m.Signal+k.Drain)
	}
	return m.Kill
}

// isLimited reports whether an app that finishes its requests has only its Drain for that.
func (k *Container) isLimited() bool { return k.Drain > 0 || k.isFollowed }

// isGoneAtOnce reports whether the stop signal ends it, or may do so.
func (k *Container) isGoneAtOnce() bool {
	return k.Reaction == Exits || k.Reaction == ClosesPort || k.Reaction == Unsure
}

// moments computes one container's end: apps is when the apps have gone, before when everything has for which a native
// sidecar waits.
func (p *Pod) moments(k *Container, tr Traffic, apps, before time.Duration) Moments {
	m := Moments{HookEnds: min(p.hookEnds(k, tr, apps), p.Grace)}
	m.Signal = m.HookEnds
	left := p.Grace - m.HookEnds.Truncate(time.Second)
	if k.Native && left > 0 {
		wait := min(max(0, before-m.HookEnds), left)
		m.Signal += wait
		left -= wait.Truncate(time.Second)
	}
	m.Kill = m.Signal + max(left, drain.LeastGrace)
	if at, stops := p.stopsAt(k, tr); stops && at <= m.Signal {
		if k.isFollowed {
			k.Drain = m.Signal - at
		}
		m.Signal = at
	}
	switch k.Reaction {
	case Exits, ClosesPort, Unsure:
		m.Gone = m.Signal
	case Finishes, ServesOn:
		m.Gone = m.Signal
		if k.Role != Aside && k.Role != Sidecar { // those have no requests to finish
			m.Gone = max(m.Signal, tr.Busy)
		}
		if k.isLimited() {
			m.Gone = min(m.Gone, m.Signal+k.Drain)
		}
	case Ignores, Reloads:
		m.Gone = m.Kill
	case FixedDrain:
		m.Gone = m.Signal + k.Drain
		if k.Native && k.Hook.Kind == DrainHook { // lastcall's began with the hook
			m.Gone = max(m.Signal, k.Drain)
		}
	case Refuses:
		m.Gone = max(m.Signal, min(tr.Busy, m.Signal+k.Drain))
		if tr.Idle || k.isFollowed { // the container has not ended
			m.Gone = m.Signal + k.Drain
		}
	case PollsZero:
		m.Gone = max(m.Signal+k.Drain+drain.IstioPollInterval, tr.Busy)
		switch over := (m.Gone - m.Signal) % drain.IstioPollInterval; {
		case tr.Polls == Late:
			m.Gone += drain.IstioPollInterval
		case tr.Polls == Counted && over > 0:
			m.Gone += drain.IstioPollInterval - over
		}
		if tr.Idle {
			m.Gone = never
		}
	case Waits:
		m.Gone = max(m.Signal, p.drained(tr), apps)
		switch {
		case k.Native:
			m.Gone = m.Signal
		case k.Blind:
			m.Gone = m.Kill
		}
	}
	// An exit at the moment of SIGKILL may come before it.
	isDue := m.Gone > m.Kill || m.Gone == m.Kill && tr.Polls != Early
	if m.Killed = isDue && !k.isGoneAtOnce() && !(k.Reaction == Waits && (k.Native || k.Blind)); m.Killed {
		m.Gone = m.Kill
	}
	return m
}

func (p *Pod) hookEnds(k *Container, tr Traffic, apps time.Duration) time.Duration {
	switch k.Hook.Kind {
	case DrainHook:
		if k.Hook.Own != nil && !k.Hook.OwnFirst {
			return p.after(tr, k.Hook.Own.Duration)
		}
		return min(max(k.Hook.Duration, p.drained(tr)), p.LastCall)
	case AppEndHook:
		return min(max(apps, p.drained(tr)), max(0, p.Grace-timers.EnvoyEnd))
	case LoopHook:
		if k.Role != Proxy {
			return k.Hook.Duration
		}
		end := time.Duration(0) // the first poll may come after the app has closed its listener
		if a := p.app(); a != nil && (a.Reaction == ServesOn || a.Reaction == Ignores) {
			end = tr.Busy // the app listens until it has finished
		}
		if tr.Polls != Early {
			end += drain.IstioPollInterval
		}
		return end
	}
	return k.Hook.Duration
}

// after is a moment of the app's own hook, which lastcall's runs after its wait, or the end of its time.
func (p *Pod) after(tr Traffic, at time.Duration) time.Duration {
	waited := p.drained(tr)
	return waited + min(at, max(p.LastCall-waited, timers.LeastAfter))
}

// app is the first app container.
func (p *Pod) app() *Container {
	for i := range p.Containers {
		if p.Containers[i].Role == App {
			return &p.Containers[i]
		}
	}
	return nil
}

// drained is when lastcall has no request in flight, or makes the last call.
func (p *Pod) drained(tr Traffic) time.Duration {
	quiet := time.Duration(0)
	if tr.Last > 0 {
		quiet = tr.Last + p.Drain.QuietTime
	}
	draining := min(max(p.Drain.MinimumDrain, quiet), p.Drain.DrainCap())
	return min(max(draining, tr.Busy), p.LastCall)
}

// limit lowers Accepts and Cut to the times of one container.
func (p *Pod) limit(c *Course, k *Container, m *Moments, tr Traffic) {
	if k.Role == Sidecar || k.Role == Aside {
		return
	}
	accepts, cut, by := m.Gone, m.Kill, "SIGKILL of "+k.Name
	switch k.Reaction {
	case Exits:
		accepts, cut, by = m.Signal, m.Signal, k.Name+" exits"
	case ClosesPort, Unsure:
		accepts, cut, by = m.Signal, m.Signal, k.Name+" may exit"
	case Reloads:
		cut, by = m.Signal, k.Name+" reloads"
	case Finishes:
		accepts = m.Signal
		if k.isLimited() && m.Signal+k.Drain < m.Kill {
			if cut, by = m.Signal+k.Drain, k.Name+"'s own time-out ends"; k.isFollowed {
				by = "the stop signal of " + k.Name + " follows"
			}
		}
	case Refuses:
		accepts, cut = m.Signal, min(m.Kill, m.Signal+k.Drain)
		if cut < m.Kill {
			by = k.Name + "'s drain ends"
		}
	case FixedDrain:
		if cut = m.Gone; cut < m.Kill {
			by = k.Name + "'s fixed drain ends"
		}
	case Waits:
		if accepts = p.drained(tr); tr.Last+p.Drain.QuietTime > p.Drain.DrainCap() && tr.Last > 0 {
			accepts = p.Drain.DrainCap()
		}
		cut, by = p.LastCall, "lastcall's last call"
	}
	m.Cut = cut
	if p.HasLastcall && k.isGoneAtOnce() && k.Hook.Kind == DrainHook && m.Signal == p.LastCall {
		by = "lastcall's last call"
	}
	if k.Role != Worker && (c.Accepts < 0 || accepts < c.Accepts) {
		c.Accepts, c.Refusal = accepts, Refused
		if k.Role == App && p.HasProxy() {
			c.Refusal = Unavailable
		} else if k.Role == Behind {
			c.Refusal = BadGateway
		}
	}
	if c.Cut < 0 || cut < c.Cut || cut == c.Cut && k.Reaction == Waits {
		c.Cut, c.CutBy = cut, by
	}
}
