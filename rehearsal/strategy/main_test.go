package strategy

import (
	"os/exec"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin/httpbintest"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

func TestMain(m *testing.M) { httpbintest.Main(m) }

func env(t *testing.T) *Env {
	t.Helper()
	n := node.New()
	t.Cleanup(n.Close)
	self, err := exec.LookPath("lastcallctl")
	must.Do(t, err)
	setup := Setup{Programs: Programs{Self: self}}
	return &Env{Setup: setup, Node: n, Grace: 5 * time.Second, MaxDelay: 10 * time.Second}
}
