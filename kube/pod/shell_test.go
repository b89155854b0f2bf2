package pod_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// TestLikeTheShell runs scripts in a real shell, with a sleep and a server that only take notes, and compares these
// with the steps.
func TestLikeTheShell(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash on this machine")
	}
	folder := t.TempDir()
	log := filepath.Join(folder, "log")
	for name, text := range map[string]string{
		"sleep": "for a in \"$@\"; do case $a in [0-9]*[!0-9.smhd]*|[!0-9]*) exit 1;; esac; done\n[ $# -gt 0 ] || exit 1\nfor a in \"$@\"; do echo $a >>" + log + "; done\n",
		"nginx": "echo stop >>" + log + "\n",
	} {
		programtest.Write(t, filepath.Join(folder, name), []byte("#!/bin/sh\n"+text))
	}
	for _, script := range []string{
		"sleep 5; sleep 1m", "sleep 20 nginx -s quit", "sleep 20 && nginx -s quit", "sleep x || sleep 3; sleep 1", "sleep x && sleep 3",
		"for i in 1 2 3; do sleep $i; done", "for i in {2..4}; do sleep $i; [ $i -ge 3 ] && break; done", "for i in $(seq 3); do sleep 1; done",
		"i=0; while [ $i -lt 4 ]; do i=$((i+1)); [ $i -eq 2 ] && continue; sleep $i; done; nginx -s quit",
		"for ((i=3;i>0;i--)); do sleep $((i * 2)); done", "until false; do sleep 2; break; done; sleep 1",
		"f() { sleep $N; }; N=2; f; N=3; f", "(N=2; sleep $N; exit 1) || sleep 7", "{ sleep 1; sleep 2; } && sleep 3 || sleep 4",
		"if false; then sleep 1; elif true; then sleep 2; else sleep 3; fi", "set -e; sleep 1; sleep x; sleep 9", "sleep ${M:-6}; ! sleep x && sleep 1",
		"sh -c 'sleep 4; exit 0'; sleep 1", "eval 'sleep 3'; exec sleep 2; sleep 9", "sleep 1 # 2\nsleep 3 \\\n 4\n", "env A=1 sleep 2; command sleep 3",
		"nginx -s quit; sleep 5", "true || sleep 3; false && sleep 4; sleep 1", "case a in b) sleep 1;; esac; sleep 2", "sleep x; exit 0; sleep 5",
		"while true; do while true; do sleep 1; break; done; sleep 2; break; done", "A=\"2 3\"; sleep $A", "sleep '2' \"3\" 4s",
		"(exit 3) && sleep 1", "f() { return 1; }; f || sleep 3; f && sleep 4", "sleep 1; f() { exit 0; }; f; sleep 4",
		"for i in a b; do for j in 1 2; do sleep $j; continue; sleep 9; done; done", "N=$((2*3)); N=$((N+1)); sleep $N", "sleep $((1+1))m",
		"[ 3 -gt 2 ] && sleep 2; [ a = b ] || sleep 3; [ a != a ] && sleep 4", "if sleep x; then sleep 1; else sleep 2; fi", "nohup sleep 3; nice -n 5 sleep 2",
		"sleep 1 && { sleep 2; false; } || sleep 3", "bash -ec 'sleep 1; false; sleep 2'; sleep 3", "set -e; if false; then sleep 1; fi; sleep 2",
		"set -e; false || sleep 1; sleep 2", "set -e; ! true; sleep 2", "x=3 sleep 1; sleep ${x:-2}", "'sleep 20'", "\"sleep 20\" || sleep 3", "while [ ${n:-0} -lt 2 ]; do n=$((${n:-0}+1)); sleep 1; done",
	} {
		_ = os.Remove(log)
		cmd := exec.CommandContext(t.Context(), bash, "-c", script)
		cmd.Env = []string{"PATH=" + folder + ":" + os.Getenv("PATH")}
		_ = cmd.Run() // it may fail, as a hook may
		notes, _ := os.ReadFile(log)
		var total, stopAt time.Duration
		isStopped := false
		for _, word := range strings.Fields(string(notes)) {
			if word == "stop" {
				stopAt, isStopped = total, true
				continue
			}
			d, err := time.ParseDuration(strings.TrimSuffix(word, "s") + "s")
			if minutes, ok := strings.CutSuffix(word, "m"); ok {
				d, err = time.ParseDuration(minutes + "m")
			}
			if err != nil {
				t.Fatalf("%q: %v", script, err)
			}
			total += d
		}
		h := hookOf(t, "image: web, ", fmt.Sprintf("{exec: {command: [bash, -c, %q]}}", script))
		isWithin := h.Duration <= total && (h.Most == 0 || total <= h.Most)
		if h.IsKnown && (h.Duration != total || h.Stops != isStopped || h.StopsAt != stopAt) || !h.IsKnown && !isWithin {
			t.Errorf("%q: read as %s, the shell takes %v (stop: %v at %v)", script, text(h), total, isStopped, stopAt)
		}
		if !h.IsKnown && !strings.Contains(script, "case") {
			t.Errorf("%q: read as %s, which is more certain", script, text(h))
		}
	}
}
