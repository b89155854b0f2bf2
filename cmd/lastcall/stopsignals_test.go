package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
)

// stopAppMain is an app that writes the signal that stopped it into a file: stopapp PORT FILE. Without the file the signal
// ends it.
func stopAppMain() {
	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGWINCH, syscall.SIGHUP, syscall.SIGINT)
	go func() { _ = http.ListenAndServe("127.0.0.1:"+os.Args[1], http.HandlerFunc(serveSlowly)) }()
	if len(os.Args) == 2 {
		signal.Reset()
		select {}
	}
	if err := os.WriteFile(os.Args[2], []byte(unix.SignalName((<-received).(syscall.Signal))), 0o600); err != nil {
		os.Exit(1)
	}
}

func serveSlowly(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/slow":
		time.Sleep(time.Second)
	case "/slower":
		time.Sleep(5 * time.Second)
	case "/endless":
		<-r.Context().Done()
	case "/environ":
		fmt.Fprint(w, os.Environ())
	}
	fmt.Fprint(w, "served")
}

// stopped is a lastcall run that is stopped while it answers a request.
type stopped struct {
	t        *testing.T
	cmd      *exec.Cmd
	ended    chan struct{}
	address  string
	received string // file with the signal that the app got
	log      string // file
}

// runStopped runs the app's command, or else stopAppMain.
func runStopped(t *testing.T, prepare func(*exec.Cmd), args ...string) *stopped {
	t.Helper()
	dir := t.TempDir()
	s := &stopped{t: t, ended: make(chan struct{}), address: freeLoopback(t), received: filepath.Join(dir, "told"), log: filepath.Join(dir, "log")}
	host, port, _ := net.SplitHostPort(freeLoopback(t))
	args = append([]string{"run", "--status-address", host, "--status-port", port, "--termination-log", "",
		"--inbound", s.address + "=127.0.0.1:0,protocol=http"}, args...)
	if !slices.Contains(args, "--") {
		args = append(args, "--", "stopapp", "{port}", s.received)
	}
	s.cmd = exec.Command("lastcall", args...)
	s.cmd.Env = append(os.Environ(), "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=50ms", "TERMINATION_GRACE_PERIOD_SECONDS=600")
	out, err := os.Create(s.log)
	must.Do(t, err)
	s.cmd.Stdout, s.cmd.Stderr = out, out
	if prepare != nil {
		prepare(s.cmd)
	}
	if err := s.cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) {
			t.Skip("no namespaces here:", err)
		}
		t.Fatal(err)
	}
	_ = out.Close()
	go func() { defer close(s.ended); _ = s.cmd.Wait() }()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.ended
		if t.Failed() {
			b, _ := os.ReadFile(s.log)
			t.Logf("%s", b)
		}
	})
	polltest.Eventually(t, "the app serves", func() bool { return textOf("http://"+s.address) != "" })
	return s
}

// request sends a request that is not answered at once, and returns when it is in flight.
func (s *stopped) request(path string) (answer <-chan string) {
	s.t.Helper()
	return inFlight(s.t, s.cmd.Args[3]+":"+s.cmd.Args[5], "http://"+s.address+path)
}

// endsBy stops it and sees to it that the request in flight is answered, that stopAppMain
// gets this signal, and that nothing is left on the port.
func (s *stopped) endsBy(stop func(), forApp string) {
	s.t.Helper()
	answer := s.request("/slow")
	stop()
	if got := <-answer; got != "served" {
		s.t.Errorf("the request in flight got %q", got)
	}
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Fatal("lastcall run still runs")
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		s.t.Errorf("lastcall run ended with %v", s.cmd.ProcessState)
	}
	if b, _ := os.ReadFile(s.received); string(b) != forApp {
		s.t.Errorf("the app was stopped by %q, want %s", b, forApp)
	}
	if c, err := net.Dial("tcp", s.address); err == nil {
		_ = c.Close()
		s.t.Error("something still listens")
	}
}

// alone starts a program without a terminal.
func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// Stop signals of images drain, for process 1 of a container as well.
func TestStopSignals(t *testing.T) {
	first := func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	}
	for _, tt := range []struct {
		name    string
		prepare func(*exec.Cmd)
		signal  syscall.Signal
		args    []string
		forApp  string
	}{
		{"nginx", alone, syscall.SIGQUIT, nil, "SIGQUIT"},
		{"nginx as process 1", first, syscall.SIGQUIT, nil, "SIGQUIT"},
		{"haproxy as process 1", first, syscall.SIGUSR1, []string{"--stop-signal", "SIGUSR1"}, "SIGUSR1"},
		{"httpd as process 1", first, syscall.SIGWINCH, []string{"--stop-signal", "usr1,winch"}, "SIGWINCH"},
		{"an app of its own mind", alone, syscall.SIGWINCH, []string{"--stop-signal", "WINCH", "--app-stop-signal", "QUIT"}, "SIGQUIT"},
		{"a real-time signal", alone, syscall.Signal(37), []string{"--stop-signal", "RTMIN+3", "--app-stop-signal", "TERM"}, "SIGTERM"},
		{"Ctrl-C", alone, syscall.SIGINT, nil, "SIGTERM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := runStopped(t, tt.prepare, tt.args...)
			s.endsBy(func() { _ = s.cmd.Process.Signal(tt.signal) }, tt.forApp)
			if log, _ := os.ReadFile(s.log); !strings.Contains(string(log), "trigger="+unix.SignalName(tt.signal)) {
				t.Error("the report does not name the signal")
			}
		})
	}
}

// When its terminal is closed, lastcall run drains and ends, whatever SIGHUP means to it without one.
func TestClosedTerminal(t *testing.T) {
	master, slave := openTerminal(t)
	s := runStopped(t, func(cmd *exec.Cmd) {
		cmd.Stdin = slave
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	})
	_ = slave.Close()
	s.endsBy(func() { _ = master.Close() }, "SIGTERM")
}

// openTerminal is a pair of pty(7).
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal("open a terminal:", err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// Stop signals that arrive at once are one: a supervisor that signals its child and then the child's group, and timeout,
// send the same twice; npm passes on the terminal's SIGINT.
func TestRepeatedStopSignals(t *testing.T) {
	for name, both := range map[string][2]syscall.Signal{
		"SIGTERM twice": {syscall.SIGTERM, syscall.SIGTERM}, "SIGINT and SIGTERM": {syscall.SIGINT, syscall.SIGTERM},
		"SIGINT twice": {syscall.SIGINT, syscall.SIGINT},
	} {
		t.Run(name, func(t *testing.T) {
			s := runStopped(t, alone)
			s.endsBy(func() {
				for _, sig := range both {
					must.Do(t, s.cmd.Process.Signal(sig))
				}
			}, "SIGTERM")
		})
	}
}

// SIGHUP without a terminal is a reload, as a systemd unit's ExecReload may send it, and SIGUSR2 has no meaning. Neither
// stops the service.
func TestSignalsThatStopNothing(t *testing.T) {
	s := runStopped(t, alone)
	for _, sig := range []syscall.Signal{syscall.SIGUSR2, syscall.SIGHUP} {
		must.Do(t, s.cmd.Process.Signal(sig))
	}
	polltest.Eventually(t, "the certificates are read again", func() bool {
		log, _ := os.ReadFile(s.log)
		return strings.Contains(string(log), "reloading the certificates")
	})
	s.endsBy(func() { _ = s.cmd.Process.Signal(syscall.SIGTERM) }, "SIGTERM")
}

// TestInterruptAtTerminal presses Ctrl-C: the terminal shows how long the drain may take, and the report as a sentence,
// once. A second Ctrl-C ends it.
func TestInterruptAtTerminal(t *testing.T) {
	for name, want := range map[string]string{"once": `; nothing cut" verdict=clean `, "twice": `; cut GET /slower from 127.0.0.1 (503)" verdict=cut `} {
		t.Run(name, func(t *testing.T) {
			master, slave := openTerminal(t)
			s := runStopped(t, func(cmd *exec.Cmd) {
				cmd.Stdin, cmd.Stderr = slave, slave
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			})
			_ = slave.Close()
			var shown logstest.Buffer
			read := make(chan struct{})
			go func() { defer close(read); _, _ = io.Copy(&shown, master) }() // EIO at the end
			interrupt := func() {
				must.Do(t, s.cmd.Process.Signal(syscall.SIGINT))
			}
			if name == "once" {
				s.endsBy(interrupt, "SIGTERM")
			} else {
				answer := s.request("/slower")
				interrupt()
				polltest.Eventually(t, "the drain is announced", func() bool { return strings.Contains(shown.String(), "draining, up to ") })
				polltest.Eventually(t, "a later Ctrl-C is no repeat of the first", func() bool {
					_ = s.cmd.Process.Signal(syscall.SIGINT) // it may have ended in between
					select {
					case <-answer:
						return true
					default:
						return false
					}
				})
				<-s.ended
			}
			<-read
			for _, text := range []string{"draining, up to 598 s; Ctrl-C again ends at once\r\n", "drained in ", want} {
				if strings.Count(shown.String(), text) != 1 {
					t.Errorf("the terminal does not have %q once:\n%s", text, &shown)
				}
			}
		})
	}
}
