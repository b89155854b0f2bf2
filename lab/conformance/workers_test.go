package conformance

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/lab/conformance/packages"
)

var workerRollouts = flag.Int("worker-rollouts", 1, "TestWorkers: rollouts of each worker; with more than one, also without the hook, and Sidekiq")

// Messages take 0.3 to 3.0 s. In a pod with the default grace period of 30 s they would take 4.5 to 45 s.
const (
	shortGrace = 2 * time.Second
	longGrace  = 20 * time.Second // the hook leaves a quarter of it to the worker
	settleTime = 20 * time.Second // after which a message that has not been run is lost; redelivery takes 8 s at most
	inFlight   = 4                // messages that have not begun: the workers always find one
)

// way is one way of stopping a worker.
type way struct {
	name  string
	grace time.Duration
	env   []string // of the worker
	args  []string // after the worker's own
	hook  []string // of lastcall wait; nil: no hook
	loses bool     // it is known to lose messages or to run them twice: only measured
}

// queueKind is a broker with its worker.
type queueKind struct {
	name   string
	broker func(t *testing.T) string
	worker []string
	ways   []way
}

func queueKinds(python string) []queueKind {
	plain := way{name: "SIGTERM, grace period shorter than the longest message", grace: shortGrace, loses: true}
	long := way{name: "SIGTERM, longer grace period", grace: longGrace}
	handler := way{name: "a signal handler, longer grace period", grace: longGrace, env: []string{"FINISH=1"}}
	hooked := func(hook ...string) way { return way{name: "lastcall wait --until", grace: longGrace, hook: hook} }
	celery := func(args ...string) []string {
		return append([]string{python, "-W", "ignore", "-m", "celery", "-A", "workers"}, args...)
	}
	measured := func(w way) way { // a SIGTERM between taking a job and starting it: RQ may lose the job
		w.loses = true
		return w
	}
	slowly := func(w way) way { // Celery's own commands need seconds of a busy processor
		w.grace *= 3
		return w
	}
	return []queueKind{
		{"celery", startRedisBroker, celery("worker", "-c", "1", "-n", "$WORKER@test", "--without-gossip", "--without-mingle", "-l", "warning"), []way{
			plain, long, slowly(hooked(append([]string{
				`exec:["sh", "-c", "` + python + ` -m celery -A workers inspect active --json -d $WORKER@test | grep -q ': \\[\\]'"]`, "--before", "30s", "--"},
				celery("control", "cancel_consumer", "celery", "-d", "$WORKER@test")...)...)),
		}},
		{"rq", startRedisBroker, []string{python, "-c", "from rq.cli import main; main()", "worker", "--url", "$BROKER", "--name", "$WORKER", "--quiet"}, []way{plain, measured(long)}},
		{"nats", startNATS, []string{python, "-m", "workers", "work"}, []way{
			plain, handler, hooked("unix:$WORK", "--before", "5s", "--", "touch", "$STOP"),
		}},
		{"postgres", startPostgres, []string{python, "-m", "workers", "work"}, []way{
			plain, handler, hooked("!file:$BUSY", "--before", "5s", "--", "touch", "$STOP"),
		}},
		{"sidekiq", startRedisBroker, []string{"sidekiq", "-c", "1", "-r", "./testdata/workers/sidekiq.rb"}, []way{
			{name: "SIGTERM, -t shorter than the longest message", grace: 3 * time.Second, args: []string{"-t", "2"}, loses: true},
			{name: "SIGTERM, longer -t and grace period", grace: longGrace, args: []string{"-t", "18"}},
			{name: "lastcall wait --until, -t as before", grace: longGrace, args: []string{"-t", "2"}, hook: []string{
				`exec:["grep", "-q", "\\[0 of [0-9]* busy\\] stopping", "/proc/$PID/cmdline"]`, "--before", "5s", "--", "kill", "-TSTP", "$PID"}},
		}},
	}
}

// A worker is replaced again and again, as in a rollout, while messages arrive: each message runs once.
func TestWorkers(t *testing.T) {
	python, packages := peers.Need(t, "python"), workerPackages(t)
	program := buildAgent(t)
	for _, kind := range queueKinds(python) {
		for _, w := range kind.ways {
			if *workerRollouts == 1 && (w.hook == nil || kind.name == "sidekiq") {
				continue
			}
			t.Run(kind.name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				s := &stream{t: t, kind: kind, way: w, dir: shortFolder(t), program: program}
				here, err := filepath.Abs("testdata/workers")
				must.Do(t, err)
				s.env = append(os.Environ(), "KIND="+kind.name, "BROKER="+kind.broker(t), "EVENTS="+filepath.Join(s.dir, "events"),
					"PYTHONPATH="+packages+":"+here, "PYTHONUNBUFFERED=1")
				s.run(*workerRollouts)
			})
		}
	}
}

// workerPackages is the folder with what testdata/workers/requirements.txt names.
func workerPackages(t *testing.T) string {
	return workersFolder(t, "python", "testdata/workers/requirements.txt", "requirements.txt", "packages", packages.Pip)
}

// stream is one kind of worker's treatment of its messages.
type stream struct {
	t       *testing.T
	kind    queueKind
	way     way
	dir     string
	program string
	env     []string

	produced int // messages; the producer's until it has ended
	unclean  int // hooks that have not seen the worker idle
}

// workerPod is a running worker.
type workerPod struct {
	name string
	env  []string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	done chan struct{}
}

func (s *stream) run(times int) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var produced sync.WaitGroup
	ready := make(chan struct{})
	produced.Go(func() { s.produce(ctx, ready) })
	<-ready
	var took []time.Duration
	killed := 0
	old := s.start(0)
	for i := range times {
		next := s.start(i + 1)
		// At any moment of the old one's message.
		time.Sleep(time.Duration(rand.Int64N(int64(time.Second))))
		d, wasKilled := s.stop(old)
		if took = append(took, d); wasKilled {
			killed++
		}
		old = next
	}
	cancel()
	produced.Wait()
	lost, twice := s.settle()
	s.stop(old)
	var sum, most time.Duration
	for _, d := range took {
		sum, most = sum+d, max(most, d)
	}
	s.t.Logf("%s, %s: %d rollouts, %d messages, %d run twice, %d lost; stopped after %.1f s on average, %.1f s at most, %d by SIGKILL, %d hooks not clean",
		s.kind.name, s.way.name, times, s.produced, twice, lost, (sum / time.Duration(len(took))).Seconds(), most.Seconds(), killed, s.unclean)
	if !s.way.loses && (lost > 0 || twice > 0) {
		s.t.Errorf("%d messages lost, %d run twice", lost, twice)
	}
}

// produce keeps messages in the queue until ctx ends. It closes ready after the first.
func (s *stream) produce(ctx context.Context, ready chan struct{}) {
	isReady := sync.OnceFunc(func() { close(ready) })
	defer isReady()
	args := []string{peers.Need(s.t, "python"), "-W", "ignore", "-m", "workers", "produce"}
	if s.kind.name == "sidekiq" {
		args = []string{"ruby", "testdata/workers/sidekiq.rb", "produce"}
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(s.env, "WORKER=producer")
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		s.t.Error(err)
		return
	}
	answers := bufio.NewScanner(out)
	for ctx.Err() == nil {
		if s.produced-len(s.read().begun) >= inFlight {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		if _, err := fmt.Fprintln(in, s.produced+1); err != nil || !answers.Scan() {
			s.t.Errorf("produce message %d: %v", s.produced+1, err)
			break
		}
		s.produced++
		isReady()
	}
	_ = in.Close()
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		s.t.Errorf("the producer: %v\n%s", err, &log)
	}
}

// events are the lines of the workers: how often each message has begun and ended, and which workers have begun one.
type events struct {
	begun, ended map[int]int
	workers      map[string]bool
}

func (s *stream) read() events {
	text, _ := os.ReadFile(filepath.Join(s.dir, "events")) // none before the first
	e := events{map[int]int{}, map[int]int{}, map[string]bool{}}
	for line := range strings.Lines(string(text)) {
		var what, worker string
		var n int
		if _, err := fmt.Sscan(line, &what, &n, &worker); err != nil {
			continue
		}
		if what == "begin" {
			e.begun[n]++
			e.workers[worker] = true
		} else {
			e.ended[n]++
		}
	}
	return e
}

// start starts a worker, and returns when it handles its first message.
func (s *stream) start(number int) *workerPod {
	s.t.Helper()
	p := &workerPod{name: "w" + strconv.Itoa(number), log: &bytes.Buffer{}, done: make(chan struct{})}
	file := func(name string) string { return filepath.Join(s.dir, p.name+"."+name) }
	p.env = append(append(append([]string{}, s.env...), s.way.env...), "WORKER="+p.name, "BUSY="+file("busy"), "STOP="+file("stop"), "WORK="+file("work"))
	args := expand(append(append([]string{}, s.kind.worker...), s.way.args...), p.env)
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.env, p.log, p.log
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must.Do(s.t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	s.t.Cleanup(func() {
		p.kill()
		<-p.done
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", p.name, p.log)
		}
	})
	polltest.Eventually(s.t, p.name+" handles a message", func() bool { return s.read().workers[p.name] })
	p.env = append(p.env, "PID="+strconv.Itoa(p.cmd.Process.Pid))
	return p
}

// expand replaces $NAME by the variables of an environment; the last one of a name counts.
func expand(args, env []string) (out []string) {
	variables := map[string]string{}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		variables[name] = value
	}
	for _, arg := range args {
		out = append(out, os.Expand(arg, func(name string) string { return variables[name] }))
	}
	return out
}

// stop ends a worker as the kubelet does: its hook, SIGTERM, and SIGKILL for all of its processes at the end of the
// grace period.
func (s *stream) stop(p *workerPod) (took time.Duration, killed bool) {
	began := time.Now()
	end := time.NewTimer(s.way.grace)
	defer end.Stop()
	if s.way.hook != nil {
		args := expand(append([]string{"wait", "--grace-period", s.way.grace.String(), "--until"}, s.way.hook...), p.env)
		hook := exec.Command(s.program, args...)
		var out bytes.Buffer
		hook.Env, hook.Stdout, hook.Stderr, hook.WaitDelay = p.env, &out, &out, time.Second
		must.Do(s.t, hook.Start())
		ended := make(chan error, 1)
		go func() { ended <- hook.Wait() }()
		select {
		case err := <-ended:
			if err != nil || !strings.Contains(out.String(), "verdict=clean") {
				s.t.Logf("the hook: %v\n%s", err, out.String())
				s.unclean++
			}
		case <-end.C:
			s.t.Errorf("the hook has not ended within the grace period\n")
			end.Reset(0)
			_ = hook.Process.Kill()
			<-ended
		}
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-end.C:
		killed = true
	}
	p.kill()
	<-p.done
	return time.Since(began), killed
}

// kill ends all processes of a worker's session, as the end of a container does: RQ's have process groups of their own.
func (p *workerPod) kill() {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		const session = 3 // proc(5), from the state on
		if stat := process.Stat(pid); len(stat) > session && stat[session] == strconv.Itoa(p.cmd.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// settle waits until each message has been run, and counts those that have not, and those that have begun twice.
func (s *stream) settle() (lost, twice int) {
	count := func() {
		e := s.read()
		lost, twice = 0, 0
		for n := 1; n <= s.produced; n++ {
			if e.ended[n] == 0 {
				lost++
			}
			if e.begun[n] > 1 {
				twice++
			}
		}
	}
	for end := time.Now().Add(settleTime); ; time.Sleep(50 * time.Millisecond) {
		if count(); lost == 0 || time.Now().After(end) {
			return lost, twice
		}
	}
}

// startRedisBroker starts a Redis that keeps nothing on disk.
func startRedisBroker(t *testing.T) string {
	t.Helper()
	at := freeAddr(t)
	// By its own name: Debian's is a link to another program that uses its name to select its role.
	startInstance(t, at, syscall.SIGTERM, syscall.SIGKILL, &exec.Cmd{Path: peers.Need(t, "redis-server"), Dir: t.TempDir(), Args: []string{
		"redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(at.Port), "--save", "", "--appendonly", "no"}})
	return "redis://" + at.String() + "/0"
}

func startNATS(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	must.Do(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("nats-server does not start")
	}
	return s.ClientURL()
}

func startPostgres(t *testing.T) string {
	return "postgresql://app@" + startTCPPostgres(t).String() + "/postgres"
}

// shortFolder is for unix sockets, whose paths are limited to 107 bytes.
func shortFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "workers")
	must.Do(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
