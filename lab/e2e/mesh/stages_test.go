//go:build e2e

package mesh

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// watched are the processes and the logs of a pod's containers, which are processes and files of this machine.
type watched struct {
	t       *testing.T
	logs    map[string]*os.File // open: they are readable after the pod has gone
	mu      sync.Mutex
	seen    map[string]*process // by container and pid
	running sync.WaitGroup
}

// process of a container, with the times at which it was first and last seen.
type process struct {
	container, name string
	first, last     time.Time
}

// watch follows a pod until all its containers have ended.
func watch(t *testing.T, p *corev1.Pod) *watched {
	t.Helper()
	w := &watched{t: t, logs: map[string]*os.File{}, seen: map[string]*process{}}
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		if c.State.Running == nil {
			continue
		}
		file, err := os.Open(filepath.Join(podLogs, fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID), c.Name, "0.log"))
		must.Do(t, err)
		t.Cleanup(func() { _ = file.Close() })
		w.logs[c.Name] = file
		_, id, _ := strings.Cut(c.ContainerID, "://")
		list := processList(t, id)
		w.running.Go(func() { w.follow(c.Name, list) })
	}
	return w
}

// processList is the file with the pids of a container.
func processList(t *testing.T, id string) string {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cgroup")
	for _, file := range all {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) < 3 || !strings.Contains(parts[2], id) {
				continue
			}
			list := filepath.Join("/sys/fs/cgroup", parts[1], parts[2], "cgroup.procs")
			if _, err := os.Stat(list); err == nil {
				return list
			}
		}
	}
	t.Fatalf("container %s has no processes", id)
	return ""
}

func (w *watched) follow(container, list string) {
	for end := time.Now().Add(2 * patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		pids, err := os.ReadFile(list)
		now := time.Now()
		if err != nil || len(pids) == 0 {
			return
		}
		for pid := range strings.FieldsSeq(string(pids)) {
			w.see(container, pid, now)
		}
	}
}

func (w *watched) see(container, pid string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.seen[container+" "+pid]
	if p == nil {
		p = &process{container: container, first: now}
		w.seen[container+" "+pid] = p
	}
	p.last = now
	if p.name == "" || strings.HasPrefix(p.name, "runc") { // until it has become its program
		line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
		p.name = string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '}))
	}
}

// find returns the first process of a container whose command line contains a text.
func (w *watched) find(container, text string) (found process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.seen {
		if p.container == container && strings.Contains(p.name, text) && (found.first.IsZero() || p.first.Before(found.first)) {
			found = *p
		}
	}
	return found
}

// lines of a container's log, with the times at which the runtime got them.
func (w *watched) lines(container string) (out []logLine) {
	file := w.logs[container]
	if file == nil {
		return nil
	}
	info, err := file.Stat()
	must.Do(w.t, err)
	text := make([]byte, info.Size())
	if _, err := file.ReadAt(text, 0); err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		stamp, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil {
			continue
		}
		out = append(out, logLine{at, strings.TrimPrefix(strings.TrimPrefix(rest, "stdout F "), "stderr F ")})
	}
	return out
}

type logLine struct {
	at   time.Time
	text string
}

// count returns how many lines contain a text.
func count(lines []logLine, text string) (n int) {
	for _, l := range lines {
		if strings.Contains(l.text, text) {
			n++
		}
	}
	return n
}

// when returns the time of the first line with a text.
func when(lines []logLine, text string) time.Time {
	for _, l := range lines {
		if strings.Contains(l.text, text) {
			return l.at
		}
	}
	return time.Time{}
}
