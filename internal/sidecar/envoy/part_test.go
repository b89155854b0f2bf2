package envoy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// The parts that this test's program plays when it is started again.
const (
	partVariable       = "LASTCALL_ENVOY_TEST_PART"
	partAgent          = "agent" // starts a real Envoy, says its number, and stays
	partIgnoresSignals = "deaf"  // an Envoy that serves its admin, and that nothing ends but SIGKILL
	optionsOf          = "LASTCALL_ENVOY_TEST_OPTIONS"
)

func playPart() {
	switch os.Getenv(partVariable) {
	case partAgent:
		var o Options
		if err := json.Unmarshal([]byte(os.Getenv(optionsOf)), &o); err != nil {
			panic(err)
		}
		o.Log, o.Stdout = discard, os.Stderr
		p, err := Start(ctx, o)
		if err != nil {
			panic(err)
		}
		fmt.Println(p.running().Pid())
		select {}
	case partIgnoresSignals:
		signal.Ignore(syscall.SIGTERM)
		panic(http.ListenAndServe(os.Getenv(optionsOf), http.HandlerFunc(answerIgnoringSignals)))
	}
}

// answerIgnoringSignals agrees to everything and does nothing.
func answerIgnoringSignals(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/config_dump", "/listeners":
		fmt.Fprint(w, "{}")
	case "/stats":
		fmt.Fprint(w, ownRequest+": 1\n")
	}
}

// An Envoy that ignores SIGTERM and /quitquitquit is killed, and that is no cut
// when no client was there.
func TestSignalsIgnored(t *testing.T) {
	t.Parallel()
	admin := nettest.FreeAddress(t, "127.0.0.1")
	log := &logstest.Buffer{}
	script := filepath.Join(t.TempDir(), "envoy")
	text := fmt.Sprintf("#!/bin/sh\n%s=%s %s=%s exec %s\n", partVariable, partIgnoresSignals, optionsOf, admin, os.Args[0])
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := Start(ctx, Options{Admin: admin, Path: script, Config: "none", Stdout: log, Stderr: log, Log: logTo(log)})
	if err != nil {
		t.Fatal(err, log)
	}
	defer p.Shut()
	terminate(t, p, log, soon).want(t, drain.Clean, "Envoy still running after SIGTERM", "Envoy still running; killing it")
	if err := syscall.Kill(p.running().Pid(), 0); err == nil {
		t.Error("it is still there")
	}
}

// An Envoy behind a script that does not hand signals on ends too, and has
// written its access log.
func TestBehindScript(t *testing.T) {
	envoy := peers.Need(t, "envoy")
	script := filepath.Join(t.TempDir(), "envoy")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+envoy+` "$@" # no exec`+"\ntrue\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(o *Options) { o.Path = script })
	for range 3 {
		_ = r.idle().Close()
	}
	r.awaitActivity(0, 0)
	r.terminate(soon).want(t, drain.Clean)
	if lines := len(r.logLines()); lines != 3 {
		t.Errorf("%d lines of access log; want 3", lines)
	}
	if groupLives(r.running()) {
		t.Error("something of it is still there")
	}
}

// When the agent is killed, its Envoy is killed as well, although it is in its own
// process group.
func TestNoOrphan(t *testing.T) {
	envoy := peers.Need(t, "envoy")
	options, err := json.Marshal(map[string]any{
		"Admin": nettest.FreeAddress(t, "127.0.0.1"), "Path": envoy, "DrainTime": time.Minute, "ParentShutdown": time.Minute, "Concurrency": 1,
		"Bootstrap": Bootstrap{Inbound: []Route{{nettest.FreeAddress(t, "127.0.0.1"), "127.0.0.1:1", "http"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	agent := exec.Command(os.Args[0])
	agent.Env = append(os.Environ(), partVariable+"="+partAgent, optionsOf+"="+string(options))
	agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log := &logstest.Buffer{}
	agent.Stderr = log
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(bufio.NewReader(out), &pid); err != nil {
		t.Fatal(err, log)
	}
	if group, err := syscall.Getpgid(pid); group != pid || err != nil {
		t.Errorf("Envoy %d stands in group %d, %v", pid, group, err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	_ = agent.Process.Kill()
	_ = agent.Wait()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds())); n != 1 {
		t.Fatalf("Envoy outlives its agent: %d, %v", n, err)
	}
}
