package peers

import (
	"os/exec"
	"testing"

	peer "github.com/lastcall-dev/lastcall/internal/peers"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin/httpbintest"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

func TestMain(m *testing.M) { httpbintest.Main(m) }

func env(t *testing.T) *strategy.Env {
	t.Helper()
	envoy := peer.Need(t, "envoy")
	self, err := exec.LookPath("lastcallctl")
	if err != nil {
		t.Fatal(err)
	}
	n := node.New()
	t.Cleanup(n.Close)
	return &strategy.Env{Node: n, Ports: &node.Ports{}, Programs: strategy.Programs{Self: self, Envoy: envoy}, Grace: defaultGrace}
}
