package podtest

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// The sidecar as in docs/security.md: an ordinary user, no capability, and no way to gain one.
func TestSidecarHasNoCapability(t *testing.T) {
	t.Parallel()
	p := start(t)
	status := threads(t, p.sidecar.cmd.Process.Pid)[0]
	if want := "1337\t1337\t1337\t1337"; status["Uid"] != want || status["Gid"] != want {
		t.Errorf("it runs as %s, %s", status["Uid"], status["Gid"])
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if strings.Trim(status[set], "0") != "" {
			t.Errorf("%s is %s", set, status[set])
		}
	}
}

// The capture needs one capability, and fails with an error that names it. The kernel does not require a certain user.
func TestCaptureNeedsNetAdmin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name         string
		capabilities []uintptr
		works        bool
	}{
		{"NET_ADMIN alone", []uintptr{unix.CAP_NET_ADMIN}, true},
		{"none", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &pod{Net: nettest.New(t), t: t}
			cmd := exec.Command(program, "capture")
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Credential:  &syscall.Credential{Uid: 1000, Gid: 1000},
				AmbientCaps: tt.capabilities,
			}
			c := launch(t, p.Pod, "capture", nil, cmd)
			err := c.wait(t)
			if !tt.works {
				if err == nil || !strings.Contains(c.log.String(), "NET_ADMIN") {
					t.Errorf("%v, %s; want a word of NET_ADMIN", err, c.log)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, c.log)
			}
			p.startSidecar(nil)
			p.serve(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
			if _, from, err := p.get(p.Pod.TCP4(appPort), "/"); err != nil || !strings.HasPrefix(from, "127.0.0.6:") {
				t.Errorf("asked from %q, %v; want it captured", from, err)
			}
		})
	}
}
