package podtest

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// fileCapabilities are those of the image's program: permitted, not effective (Makefile, lab/image).
const fileCapabilities = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SETPCAP

// inImage is a copy of the program with its file capabilities.
func inImage(t *testing.T) string {
	t.Helper()
	name := filepath.Join(filepath.Dir(program), "in-image")
	if _, err := os.Stat(name); err == nil {
		return name
	}
	text, err := os.ReadFile(program)
	must.Do(t, err)
	must.Do(t, os.WriteFile(name, text, 0o755))
	var attribute []byte
	for _, word := range []uint32{0x02000000, fileCapabilities, 0, 0, 0} {
		attribute = binary.LittleEndian.AppendUint32(attribute, word)
	}
	if err := unix.Setxattr(name, "security.capability", attribute, 0); err != nil {
		t.Fatalf("give %s its file capabilities: %v", name, err)
	}
	return name
}

// threads are the lines of /proc/PID/task/*/status, by name, of each thread.
func threads(t *testing.T, pid int) (all []map[string]string) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	must.Do(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Do(t, err)
		status := map[string]string{}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(line, ":")
			status[key] = strings.TrimSpace(value)
		}
		all = append(all, status)
	}
	return all
}

// A sidecar that sets the rules itself captures as after an init container, and no thread of it can ever do so again. Its
// container starts a second time while the rules are there.
func TestSidecarCapturesAndGivesUp(t *testing.T) {
	p := &pod{Net: nettest.New(t), t: t}
	lastcall := inImage(t)
	for round := range 2 {
		p.sidecar = p.run(p.Pod.As(proxyUID, proxyUID), "sidecar", []string{"MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=0s"},
			lastcall, "capture", "--exclude-inbound-ports", "9090", "--", lastcall, "agent", "--capture", "--termination-log", "", "--status-port", "15020")
		p.until("ready", func() bool {
			code, _, err := p.get(p.Pod.TCP4(15020), "/healthz/ready")
			return err == nil && code == http.StatusOK
		})
		if round == 0 {
			p.serve(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
		}
		p.captures()
		all := threads(t, p.sidecar.cmd.Process.Pid)
		if len(all) < 2 {
			t.Fatalf("%d threads", len(all))
		}
		for _, status := range all {
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				if strings.Trim(status[set], "0") != "" || status[set] == "" {
					t.Errorf("round %d: %s of a thread is %q", round, set, status[set])
				}
			}
			if want := "1337\t1337\t1337\t1337"; status["Uid"] != want || status["Gid"] != want || status["NoNewPrivs"] != "1" {
				t.Errorf("round %d: user %s, group %s, no_new_privs %s", round, status["Uid"], status["Gid"], status["NoNewPrivs"])
			}
		}
		if round == 1 {
			break
		}
		must.Do(t, p.sidecar.Kill())
		<-p.sidecar.Done()
	}
}

// What the file's capabilities permit, a command that does not capture gives up.
func TestOtherCommandsGiveUpFileCapabilities(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.sidecar = p.run(p.Pod.As(proxyUID, proxyUID), "sidecar", nil, inImage(t), "agent", "--capture", "--termination-log", "")
	p.until("ready", func() bool {
		code, _, err := p.get(p.Pod.TCP4(15020), "/healthz/ready")
		return err == nil && code == http.StatusOK
	})
	for _, status := range threads(t, p.sidecar.cmd.Process.Pid) {
		if strings.Trim(status["CapPrm"]+status["CapEff"], "0") != "" {
			t.Errorf("a thread has the capabilities %s, %s", status["CapPrm"], status["CapEff"])
		}
	}
}

// Each right is needed, and its absence has a name. The kernel does not require a certain user.
func TestCaptureNeeds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, want   string // want: in the error; empty: it captures
		args         []string
		capabilities []uintptr
	}{
		{"none", "CAP_NET_ADMIN", []string{"capture"}, nil},
		{"NET_ADMIN alone", "", []string{"capture"}, []uintptr{unix.CAP_NET_ADMIN}},
		{"none, then a command", "CAP_NET_ADMIN", []string{"capture", "--", program, "--version"}, nil},
		{"NET_ADMIN alone, then a command", "CAP_SETPCAP", []string{"capture", "--", program, "--version"}, []uintptr{unix.CAP_NET_ADMIN}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &pod{Net: nettest.New(t), t: t}
			cmd := exec.Command(program, tt.args...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}, AmbientCaps: tt.capabilities}
			c := launch(t, p.Pod, "capture", nil, cmd)
			err := c.wait(t)
			if (err == nil) != (tt.want == "") || !strings.Contains(c.log.String(), tt.want) {
				t.Fatalf("%v, %s; want a word of %q", err, c.log, tt.want)
			}
			if err != nil {
				return
			}
			p.startSidecar(nil)
			p.serve(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
			p.captures()
		})
	}
}

// captures requires that a client's connection comes to the app through the sidecar.
func (p *pod) captures() {
	p.t.Helper()
	if _, from, err := p.get(p.Pod.TCP4(appPort), "/"); err != nil || !p.isFromSidecar(from) {
		p.t.Fatalf("asked from %q, %v; want it captured", from, err)
	}
}
