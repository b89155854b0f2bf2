package envoy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// A reload is Envoy's hot restart: the next Envoy receives the listening sockets of the current one, which then drains,
// and which the next one ends after --parent-shutdown-time-s. Envoy sets three rules. The next one closes the current
// one's admin API before it binds its listeners, so its configuration is validated first. It aborts when its
// predecessor is ended by another process. A third Envoy ends the first at once, so a reload waits for the end of the
// first.

// hotRestart are Envoy's arguments; the zero value disables hot restarts.
type hotRestart struct {
	base  uint32 // --base-id
	epoch int    // --restart-epoch
}

const sharedMemory = "/dev/shm"

// newHotRestart chooses a base id at random: Envoy's abstract sockets, which have it in their names, belong to the
// network namespace, in which the containers of a pod have the same process numbers.
func (o *Options) newHotRestart() (h hotRestart, err error) {
	if slices.ContainsFunc(o.Args, func(arg string) bool {
		return strings.Contains(arg, "hot-restart") || strings.HasPrefix(arg, "--base-id")
	}) {
		return h, errors.New("--envoy-arg sets its hot restart")
	}
	if err := unix.Access(sharedMemory, unix.W_OK); err != nil {
		return h, fmt.Errorf("its hot restart needs a writable %s: %w", sharedMemory, err)
	}
	return hotRestart{base: 1 + rand.Uint32N(1<<28)}, nil
}

func (h hotRestart) args(o *Options) []string {
	if h.base == 0 {
		return []string{"--disable-hot-restart"}
	}
	return []string{"--base-id", strconv.FormatUint(uint64(h.base), 10), "--restart-epoch", strconv.Itoa(h.epoch),
		"--parent-shutdown-time-s", seconds(o.ParentShutdown)}
}

// memory is the file that Envoys share. They leave it behind.
func (h hotRestart) memory() string {
	return fmt.Sprintf("%s/envoy_shared_memory_%d", sharedMemory, uint64(h.base)*10)
}

// forgetStart removes the mark of an Envoy that has exited while it started, for which the next one would exit
// ("previous envoy process is still initializing"). The mark is the last of the 104 bytes of Envoy's struct
// SharedMemory of hot restart version 11.
func (h hotRestart) forgetStart() error {
	b, err := os.ReadFile(h.memory())
	if err != nil || len(b) != 104 || b[8] != 11 {
		err = cmp.Or(err, errors.ErrUnsupported)
		return fmt.Errorf("envoy's %s is not of hot restart version 11.104: %w", h.memory(), err)
	}
	clear(b[96:])
	return os.WriteFile(h.memory(), b, 0o600)
}

// Reload starts an Envoy with the present configuration, which takes over. It returns at once; the result is logged.
func (p *Plane) Reload() error {
	if p.cannotReload != nil {
		return fmt.Errorf("envoy is not reloaded: %w", p.cannotReload)
	}
	sockdiag.Notify(p.reloads)
	return nil
}

// configPoll is how often the configuration file is checked. A mounted ConfigMap changes within a minute or two.
const configPoll = 2 * time.Second

// followConfig reloads at each request, and when the configuration file has changed.
func (p *Plane) followConfig() {
	tick := time.NewTicker(configPoll)
	defer tick.Stop()
	for {
		select {
		case <-p.reloads:
		case <-tick.C:
			now, err := os.ReadFile(p.o.Config)
			p.mu.Lock()
			isSame := bytes.Equal(now, p.tried)
			p.mu.Unlock()
			if err != nil || isSame {
				continue
			}
		case <-p.life.Done():
			return
		}
		if err := p.replace(p.life); err != nil && p.life.Err() == nil {
			p.log.Error("Envoy not reloaded; the current one keeps serving", "error", err)
		}
	}
}

// replace starts the successor of the current Envoy, with the present configuration. If that fails, one with the
// current configuration takes over: the current Envoy has lost its admin API, without which it cannot drain.
func (p *Plane) replace(ctx context.Context) error {
	timeout := cmp.Or(p.o.StartTimeout, DefaultStartTimeout)
	if previous := p.reloaded(); previous != nil && !previous.HasExited() {
		p.log.Info("reload waits for the end of the previous Envoy, parentShutdownDuration after the last reload",
			"pid", previous.Pid())
		if !ends(ctx, previous, 2*p.o.ParentShutdown) {
			return cmp.Or(ctx.Err(), errors.New("the previous Envoy does not end"))
		}
	}
	p.replacing.Lock()
	defer p.replacing.Unlock()
	config, _ := os.ReadFile(p.o.Config) // Envoy reports an unreadable file
	p.mu.Lock()
	p.tried = config
	p.mu.Unlock()
	if p.o.Config != "" {
		o := p.o
		o.Args = append(slices.Clone(o.Args), "--mode", "validate")
		check, err := o.start(hotRestart{})
		if err != nil {
			return err
		}
		if !ends(ctx, check, timeout) {
			check.Kill()
			<-check.Done()
		}
		if check.Code() != 0 {
			return fmt.Errorf("validate %s: envoy exited with code %d; its output is in the log above",
				o.Config, check.Code())
		}
	}
	p.mu.Lock()
	if p.draining {
		p.mu.Unlock()
		return errors.New("the drain has begun")
	}
	settled, h := make(chan struct{}), p.hot
	p.settled = settled
	p.mu.Unlock()
	defer close(settled)
	o := p.o
	h.epoch++
	err := p.succeed(ctx, &o, h, timeout)
	if err == nil {
		p.good = config
	}
	if err == nil || p.running().HasExited() {
		return err
	}
	if o.Config != "" {
		o.Config = fmt.Sprintf("%s/lastcall-envoy-%d%s", sharedMemory, h.base, filepath.Ext(o.Config))
		defer func() { _ = os.Remove(o.Config) }()
		if failed := os.WriteFile(o.Config, p.good, 0o600); failed != nil {
			return errors.Join(err, failed)
		}
	}
	if failed := h.forgetStart(); failed != nil {
		return errors.Join(err, failed)
	}
	return errors.Join(err, p.succeed(ctx, &o, h, timeout))
}

// succeed starts the successor of the current Envoy, and returns when it serves.
func (p *Plane) succeed(ctx context.Context, o *Options, h hotRestart, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	next, err := o.start(h)
	if err != nil {
		return err
	}
	previous := p.running()
	follow, unfollow := context.WithCancel(p.life)
	p.work.Go(func() { defer unfollow(); p.followPrevious(follow, previous, began) })
	late := p.admin.await(ctx, p.log, next.Done(), func(ctx context.Context) error {
		return p.admin.servesEpoch(ctx, h.epoch)
	})
	switch {
	case next.HasExited():
		unfollow()
		return fmt.Errorf("envoy exited with code %d before it was ready; its output is in the log above", next.Code())
	case late != nil:
		unfollow()
		next.Kill()
		<-next.Done()
		return late
	}
	p.mu.Lock()
	p.previous, p.hot = previous, h
	p.mu.Unlock()
	p.put(next)
	p.work.Go(func() {
		if !ends(p.life, previous, p.o.ParentShutdown+endsSoon+exitTime) && p.life.Err() == nil {
			p.log.Warn("the previous Envoy has not ended; killing it", "pid", previous.Pid())
			_ = previous.SignalGroup(syscall.SIGKILL)
		}
	})
	p.notePrevious()
	return p.layOut(ctx, true)
}

// servesEpoch is nil when the Envoy with this epoch serves: its predecessor answers at the same address before.
func (a *Admin) servesEpoch(ctx context.Context, epoch int) error {
	body, err := a.call(ctx, http.MethodGet, "/server_info")
	var info struct {
		State   string
		Options struct {
			Epoch int `json:"restart_epoch"`
		} `json:"command_line_options"`
	}
	if err := cmp.Or(err, json.Unmarshal(body, &info)); err != nil {
		return err
	}
	if info.Options.Epoch != epoch || info.State != "LIVE" {
		return fmt.Errorf("epoch %d is %s", info.Options.Epoch, info.State)
	}
	return nil
}

// From endsSoon before its end, the connections of the previous Envoy are read every endsPoll. It closes them one after
// the other, which takes up to endTime on a busy machine: what was busy and closed so shortly before was cut.
const endsSoon, endsPoll, endTime = time.Second, 50 * time.Millisecond, 500 * time.Millisecond

// maxNamed bounds the log lines about them.
const maxNamed = 10

// followPrevious logs the requests that the end of the previous Envoy cuts. Its successor was started at began: on a
// busy machine it ends the previous one before it answers that it serves.
func (p *Plane) followPrevious(ctx context.Context, previous *process.Child, began time.Time) {
	var cut []sockdiag.Socket // with a request, at the last look that has shown it, at Ended
	first := began.Add(p.o.ParentShutdown - min(endsSoon, p.o.ParentShutdown/2))
	wait := time.Until(first)
	for ; !ends(ctx, previous, wait) && ctx.Err() == nil; wait = endsPoll {
		own := sockdiag.Inodes(previous.Group())
		p.mu.Lock()
		open, _ := p.sockets(connectionStates)
		l := p.layout
		p.mu.Unlock()
		if dying(previous) {
			continue
		}
		now := time.Now()
		cut = slices.DeleteFunc(cut, func(was sockdiag.Socket) bool {
			isOpen := func(s sockdiag.Socket) bool { return s.Cookie == was.Cookie && own[s.Inode] }
			return slices.ContainsFunc(open, isOpen) || now.Sub(was.Ended) > endTime
		})
		for _, s := range open {
			if s.Ended = now; own[s.Inode] && l.counts(s.Local) && l.waits(s) != isAnswered {
				cut = append(cut, s)
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	for _, s := range cut[:min(len(cut), maxNamed)] {
		p.log.Warn("a request in flight was cut at the end of the previous Envoy", "peer", s.Remote.String(),
			"last_received", s.LastReceived, "of", len(cut),
			"hint", "raise parentShutdownDuration", "parent_shutdown", p.o.ParentShutdown)
	}
}

// ends waits for the end of a process, at most for a time, and reports whether it has ended.
func ends(ctx context.Context, c *process.Child, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
	return c.HasExited()
}

// awaitReload waits until no reload is in progress: the admin API belongs to neither Envoy for a moment.
func (p *Plane) awaitReload(ctx context.Context) {
	p.mu.Lock()
	p.draining = true
	settled := p.settled
	p.mu.Unlock()
	select {
	case <-settled:
	case <-ctx.Done():
	}
	p.notePrevious()
}

// notePrevious makes the previous Envoy's connections count as busy: the stats are late about them.
func (p *Plane) notePrevious() {
	if previous := p.reloaded(); previous != nil {
		sockets := sockdiag.Inodes(previous.Group())
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ledger.previous = sockets
	}
}
