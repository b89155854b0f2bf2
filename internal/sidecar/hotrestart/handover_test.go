package hotrestart

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTheFirstProcess is the life of a first process, in one of its own, since a process takes over only once.
// Whole chains are tested with the real program, in cmd/lastcall.
func TestTheFirstProcess(t *testing.T) {
	const itself = "HANDOVER_TEST_FIRST_PROCESS"
	if os.Getenv(itself) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheFirstProcess$", "-test.v")
		cmd.Env = append(os.Environ(), itself+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	Explain(errors.New("there is no predecessor"))

	file := filepath.Join(t.TempDir(), "pid")
	h, err := Begin(Options{PIDFile: file})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Begin(Options{}); err == nil {
		t.Error("a second handover has begun in one process")
	}
	if h.Succeeds() || h.timeout != DefaultTimeout {
		t.Errorf("succeeds: %v, timeout %v", h.Succeeds(), h.timeout)
	}
	if err := h.AwaitPredecessor(t.Context()); err != nil {
		t.Errorf("there is no predecessor: %v", err)
	}

	ln := nettest.Listen(t, "127.0.0.1:0")
	address := ln.Addr().String()
	if err := h.Reserve("tcp", address); err == nil {
		t.Errorf("reserved %s, which another has", address)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.Reserve("tcp", address); err != nil {
		t.Fatal(err)
	}
	if ln, err = h.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}

	if _, err := h.Restart(t.Context()); err == nil {
		t.Error("restarted before ready")
	}
	if err := h.Ready(); err != nil {
		t.Fatal(err)
	}
	pid := func() string {
		t.Helper()
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(b))
	}
	if own := strconv.Itoa(os.Getpid()); pid() != own {
		t.Errorf("the pid file holds %s, want %s", pid(), own)
	}
	if err := h.writePID(4711); err != nil || pid() != "4711" {
		t.Errorf("bequeathed to %s: %v", pid(), err)
	}

	// A closed listener still accepts connections, into a queue that no process empties,
	// until Stop.
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("before Stop: %v", err)
	}
	_ = conn.Close()
	h.Stop()
	h.Stop()
	if _, err := net.Dial("tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Stop: %v, want refused", err)
	}
	if ln, err = h.Listen("tcp", address); err != nil {
		t.Fatalf("listen again after Stop: %v", err)
	}
	_ = ln.Close()
	if _, err := h.Restart(t.Context()); err == nil {
		t.Error("restarted after Stop")
	}
}

func TestIsAlive(t *testing.T) {
	if !IsAlive(os.Getpid()) {
		t.Error("this process is not alive")
	}
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(10 * time.Second); IsAlive(cmd.Process.Pid); { // a zombie is not alive
		if time.Now().After(late) {
			t.Fatal("a zombie is alive")
		}
	}
	if err := cmd.Wait(); err != nil || IsAlive(cmd.Process.Pid) {
		t.Errorf("after its end: %v, alive: %v", err, IsAlive(cmd.Process.Pid))
	}
}

// tableflip has no typed error for a predecessor that has not exited: upgrade compares the text. The test runs this
// program as a successor of itself.
func TestTableflipNamesALivingParent(t *testing.T) {
	if isSuccessor() {
		h, err := Begin(Options{})
		if err == nil {
			err = h.Ready()
		}
		for late := time.Now().Add(5 * time.Second); err == nil || err.Error() != parentAlive; err = h.upgrader.Upgrade() {
			if time.Now().After(late) { // Ready takes effect a moment after it has returned
				fmt.Printf("error %v, want %q\n", err, parentAlive)
				os.Exit(1)
			}
		}
		os.Exit(0) // tableflip's goroutines end with the process
	}
	fromSuccessor, ready, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer fromSuccessor.Close()
	names, toSuccessor, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer toSuccessor.Close() // the successor takes this for the exit of its parent
	if err := gob.NewEncoder(toSuccessor).Encode([][]string{}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTableflipNamesALivingParent$")
	cmd.Env = append(os.Environ(), sentinel+"7DIU3=yes")
	cmd.ExtraFiles = []*os.File{ready, names}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	_, _ = ready.Close(), names.Close()
}
