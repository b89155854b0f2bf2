package sockdiag

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// reports are those of a kernel in a test.
type reports struct{ gone chan struct{} }

func (r reports) Gone() <-chan struct{}   { return r.gone }
func (r reports) Ended() ([]Socket, bool) { return nil, false }
func (r reports) Close() error            { return nil }

func TestLoop(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name   string
		blind  bool
		cost   time.Duration
		wish   time.Duration // after each look; 0: none
		report []time.Duration
		silent time.Duration // 0: never
		want   []time.Duration
	}{
		{name: "a cheap look", cost: 10 * time.Microsecond, want: []time.Duration{0, 50 * ms, 100 * ms, 150 * ms}},
		{name: "in proportion", cost: 200 * time.Microsecond, want: []time.Duration{0, 160 * ms}},
		{name: "an expensive look", cost: 10 * ms, want: []time.Duration{0}},
		{name: "without reports", blind: true, cost: 50 * time.Microsecond, want: []time.Duration{0, 40 * ms, 80 * ms, 120 * ms, 160 * ms}},
		{name: "an earlier wish", cost: 10 * time.Microsecond, wish: 30 * ms, want: []time.Duration{0, 30 * ms, 60 * ms, 90 * ms, 120 * ms, 150 * ms, 180 * ms}},
		{name: "a wish to look at once", cost: 10 * ms, wish: ms, want: []time.Duration{0, 100 * ms}},
		{name: "reports", cost: 10 * time.Microsecond, report: []time.Duration{20 * ms, 21 * ms, 22 * ms}, want: []time.Duration{0, 20 * ms, 25 * ms, 30 * ms, 80 * ms, 130 * ms, 180 * ms}},
		{name: "reports, an expensive look", cost: 10 * ms, report: []time.Duration{20 * ms, 21 * ms}, want: []time.Duration{0, 100 * ms}},
		{name: "the kernel becomes silent", cost: 10 * time.Microsecond, silent: 120 * ms, want: []time.Duration{0, 50 * ms, 100 * ms, 120 * ms, 140 * ms, 160 * ms, 180 * ms}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var looks []time.Duration
				r := reports{make(chan struct{}, 1)}
				silent := false
				loop := &Loop{
					Reports: r, Share: 800, Min: 50 * ms, Max: 400 * ms, Pause: 5 * ms,
					Look: func() { looks = append(looks, time.Since(began)) },
					Next: func() (cost time.Duration, wish time.Time) {
						if tt.wish > 0 && len(looks) > 0 {
							wish = began.Add(looks[len(looks)-1] + tt.wish)
						}
						return tt.cost, wish
					},
					Silent: func() { silent = true },
				}
				if tt.blind {
					loop.Reports = nil
				}
				loop.Start(t.Context())
				for _, at := range tt.report {
					time.Sleep(at - time.Since(began))
					select {
					case r.gone <- struct{}{}:
					default:
					}
				}
				if tt.silent > 0 {
					time.Sleep(tt.silent - time.Since(began))
					close(r.gone)
				}
				time.Sleep(199*ms - time.Since(began))
				loop.Close()
				if !slices.Equal(looks, tt.want) || silent != (tt.silent > 0) {
					t.Errorf("looks at %v, want %v; silent: %v", looks, tt.want, silent)
				}
			})
		})
	}
}

// Recheck is for a wish that has come up since the last look.
func TestLoopRecheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var looks []time.Duration
		var soon atomic.Bool
		recheck := make(chan struct{})
		loop := &Loop{
			Share: 800, Min: time.Hour, Max: time.Hour, Recheck: recheck, Reports: reports{make(chan struct{})},
			Look: func() {
				looks = append(looks, time.Since(began))
				soon.Store(false)
			},
			Next: func() (cost time.Duration, wish time.Time) {
				if soon.Load() {
					wish = began.Add(time.Second)
				}
				return 0, wish
			},
		}
		loop.Start(t.Context())
		synctest.Wait()
		soon.Store(true)
		recheck <- struct{}{}
		time.Sleep(2 * time.Second)
		loop.Close()
		if want := []time.Duration{0, time.Second}; !slices.Equal(looks, want) {
			t.Errorf("looks at %v, want %v", looks, want)
		}
	})
}

// In a network namespace of its own: the machine's other programs come and go.
func TestOthers(t *testing.T) {
	if os.Getenv("SOCKDIAG_ALONE") == "" {
		alone := exec.Command(os.Args[0], "-test.run=^TestOthers$", "-test.v")
		alone.Env = append(os.Environ(), "SOCKDIAG_ALONE=1")
		alone.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := alone.CombinedOutput()
		if errors.Is(err, os.ErrPermission) {
			t.Skip("a network namespace needs root: ", err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	loopbackUp(t)
	table := table(t)
	before, err := table.Others()
	must.Do(t, err)
	ln, _ := listen(t, "127.0.0.1:0") // ours: counts for nothing
	pair(t, ln)
	if now, err := table.Others(); err != nil || now != before {
		t.Errorf("with sockets of our own: %d, %v; want %d", now, err, before)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	other := exec.Command(python, "-c", "import socket,sys\ns=socket.create_server(('127.0.0.1',0))\nprint('up',flush=True)\nsys.stdin.read()")
	in, _ := other.StdinPipe()
	out, _ := other.StdoutPipe()
	must.Do(t, other.Start())
	defer func() { _ = in.Close(); _ = other.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if now, err := table.Others(); err != nil || now <= before {
		t.Errorf("with another's listener: %d, %v; want more than %d", now, err, before)
	}
	_ = in.Close()
	_ = other.Wait()
	polltest.Eventually(t, "another's listener no longer counts", func() bool {
		now, _ := table.Others()
		return now <= before
	})
}

func loopbackUp(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	must.Do(t, err)
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	must.Do(t, err)
	lo.SetUint16(unix.IFF_UP)
	must.Do(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}
