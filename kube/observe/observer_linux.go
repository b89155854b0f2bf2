package observe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// Limits of the observer.
const (
	maxPods         = 2048             // watched pods; Kubernetes supports 110 on a node, some vendors 250
	maxTerminations = 1024             // at the same time
	statusPatience  = 3 * time.Second  // for the exit codes, after the last process of the pod
	reportPatience  = 15 * time.Second // likewise in a pod of lastcall, for its report: many that end at once are late
	newsPatience    = 5 * time.Second  // for the API server's news of a pod whose processes have ended
	endPatience     = 15 * time.Second // after the deadline, for the end of the pod
	lateAfter       = 3 * time.Second  // a deletion that is older than this at first sight; its time has whole seconds
	scanPause       = 100 * time.Millisecond
	maxScanPause    = 500 * time.Millisecond
	scanRetries     = 20 // of a pod whose processes are not found
)

// Observer watches the pods of one node.
type Observer struct {
	Pods   cache.ListerWatcher // of the node
	Proc   string              // where the node's process table is, /proc
	Open   Open                // opens a pod's network namespace
	Node   string
	Report func(Termination) // is called once for each termination, by several goroutines; must not block
	Count  *Metrics
	Log    *slog.Logger

	// Announces notifies lastcall's agents in pods of a SIGKILL before the end of their grace periods.
	Announces bool

	// ShutdownGrace is the kubelet's grace period for most pods at a shutdown of the node: shutdownGracePeriod less
	// shutdownGracePeriodCriticalPods. 0: unknown.
	ShutdownGrace time.Duration

	// API receives the result of each request for pods; may be nil.
	API func(error)

	// Entered receives the result of each attempt to enter the network namespace of a pod; may be nil.
	Entered func(error)

	dirty chan struct{} // a pod's processes are to be found
	work  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	tracked map[types.UID]*tracked
	ending  int
	broken  bool // the API server is away
}

// tracked is a pod of the node.
type tracked struct {
	pod      Pod
	traffic  Watch           // nil until its network namespace has been found
	sandbox  *handle         // the pause process
	mains    []*handle       // the main processes of its containers, sandbox included
	ended    time.Time       // of the last container that ended without the pod, until that is reported
	watched  map[string]bool // containers whose end without the pod is watched, or has been
	isMissed bool            // one has ended that was not
	found    chan struct{}
	retries  int
	isEnding bool
	isGone   bool            // from the API server
	isDone   bool            // has been reported
	changed  chan struct{}   // receives after a change of pod or isGone
	life     context.Context // of the watch of its processes
	stop     context.CancelFunc

	began        time.Time // when the observer received that the pod ends
	graceSince   time.Time // when it received Pod.DeletionGrace, or that the node shuts down
	announced    Deadline  // the last one that was sent to the agent
	isAnnouncing bool
	accepted     Deadline // the last one that the agent has accepted
}

// Run observes until ctx ends. Terminations in progress are then reported as unknown.
func (o *Observer) Run(ctx context.Context) {
	o.dirty, o.tracked = make(chan struct{}, 1), map[types.UID]*tracked{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.work.Go(func() { o.locate(ctx) })
	o.watchPods(ctx)
	cancel()
	o.work.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.tracked {
		t.close()
	}
}

// answered records whether the API server answers.
func (o *Observer) answered(err error) {
	o.mu.Lock()
	o.broken = err != nil
	o.mu.Unlock()
	if o.API != nil {
		o.API(err)
	}
}

func (o *Observer) seen(ctx context.Context, p Pod) {
	now := time.Now() // the lock may be held while namespaces are entered
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tracked[p.UID]
	if t == nil {
		if p.hasEnded() || len(o.tracked) >= maxPods {
			return
		}
		t = &tracked{found: make(chan struct{}), changed: make(chan struct{}, 1), watched: map[string]bool{}}
		o.tracked[p.UID] = t
		if !p.HostNetwork {
			o.Count.Expect(p.Key)
		}
	}
	isSame := func(a, b Container) bool { return a.ID == b.ID }
	isNew := !t.isDone && (t.pod.UID == "" || !slices.EqualFunc(t.pod.Containers, p.Containers, isSame))
	if p.isTerminating() != t.pod.isTerminating() {
		t.graceSince = now
		if !p.Deleted.IsZero() && now.Sub(p.Deleted) > lateAfter { // the observer has just started
			t.graceSince = p.Deleted
		}
	} else if p.DeletionGrace < t.pod.DeletionGrace { // a second, shorter deletion
		t.graceSince = now
	}
	for _, c := range t.pod.Containers {
		isNext := func(next Container) bool { return next.Name == c.Name && next.Restarts > c.Restarts }
		if slices.ContainsFunc(p.Containers, isNext) {
			t.isMissed = t.isMissed || !t.watched[c.ID]
			delete(t.watched, c.ID)
		}
	}
	ran := t.pod.hasStarted() && !t.pod.hasEnded()
	t.pod = p
	sockdiag.Notify(t.changed)
	if p.HostNetwork {
		if p.isTerminating() && p.hasStarted() && !p.hasEnded() && !t.isDone {
			o.leaveOut(t)
		}
		return
	}
	if isNew && p.hasStarted() {
		t.retries = 0
		sockdiag.Notify(o.dirty)
	}
	if t.isDone {
		return
	}
	if p.isTerminating() && p.hasStarted() && (ran || !p.hasEnded()) { // the end may be in the same news
		o.end(ctx, t, now)
		o.announceLocked(ctx, t)
	}
}

// leaveOut reports that the termination of a pod with the node's network is not observed. It is none of the
// terminations that the metrics count by workload. o.mu is locked.
func (o *Observer) leaveOut(t *tracked) {
	t.isDone = true
	r := t.report(o.Node, time.Now())
	r.Doubt(UnknownHostNetwork)
	r.Judge()
	o.Count.CountUnknown(UnknownHostNetwork)
	o.Report(r)
}

func (o *Observer) gone(ctx context.Context, uid types.UID) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.tracked[uid]
	if t == nil {
		return
	}
	t.isGone = true
	sockdiag.Notify(t.changed)
	switch {
	case t.isEnding && !t.isDone: // is forgotten after its report
	// Deleted with --force: its processes may still run.
	case !t.isDone && !t.pod.HostNetwork && t.pod.hasStarted() && !t.pod.hasEnded():
		o.end(ctx, t, now)
	default:
		delete(o.tracked, uid)
		t.close()
	}
}

// end begins to observe a termination, of which the observer received at began. o.mu is locked.
func (o *Observer) end(ctx context.Context, t *tracked, began time.Time) {
	if t.isEnding {
		return
	}
	t.isEnding, t.began = true, began
	if o.ending >= maxTerminations {
		r := t.report(o.Node, began)
		r.Doubt(UnknownTooMany)
		r.conclude(&t.pod, nil)
		o.finish(r)
		o.doneLocked(t)
		return
	}
	o.ending++
	o.work.Go(func() {
		r := o.terminate(ctx, t, began)
		o.mu.Lock()
		o.ending--
		o.doneLocked(t)
		o.mu.Unlock()
		o.finish(r)
	})
}

// doneLocked keeps the rest of a pod's state until the API server has deleted it, so that it is not reported twice.
func (o *Observer) doneLocked(t *tracked) {
	t.isDone = true
	t.close()
	if t.isGone {
		delete(o.tracked, t.pod.UID)
	}
}

func (t *tracked) close() {
	if t.stop != nil {
		t.stop()
	}
	if t.traffic != nil {
		_ = t.traffic.Close()
		t.traffic = nil
	}
}

func (o *Observer) finish(r Termination) {
	if !r.Restart {
		for _, reason := range r.Unknown {
			o.Count.CountUnknown(reason)
		}
	}
	o.Count.Count(&r.Termination)
	o.Report(r)
}

// rights are the capabilities of an observer, and why it needs them.
var rights = []struct {
	number    int
	name, why string
}{
	{unix.CAP_SYS_PTRACE, "SYS_PTRACE", "opens the network namespace of another user's process"},
	{unix.CAP_SYS_ADMIN, "SYS_ADMIN", "enters that network namespace"},
}

// CheckRights returns an error that names what this process lacks for observing the pods of a node.
func CheckRights() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // of 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read the own capabilities: %w", err)
	}
	return checkRights(uint64(sets[1].Effective)<<32|uint64(sets[0].Effective), os.Getpid())
}

func checkRights(effective uint64, pid int) error {
	var errs []error
	if pid == 1 { // of a PID namespace of its own
		errs = append(errs, errors.New("the node's processes are not visible: hostPID is missing"))
	}
	for _, r := range rights {
		if effective&(1<<r.number) == 0 {
			errs = append(errs, fmt.Errorf("the capability %s is missing: it %s", r.name, r.why))
		}
	}
	return errors.Join(errs...)
}
