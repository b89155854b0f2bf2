package peers

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	peer "github.com/lastcall-dev/lastcall/internal/peers"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// The test binary under this name stands in for lastcallctl's app.
func TestMain(m *testing.M) {
	// The race detector would hold each process for a second at its end.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	testscript.Main(verified{m}, map[string]func(){"lastcallctl": app})
}

type verified struct{ m *testing.M }

func (v verified) Run() int {
	code := v.m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		return 1
	}
	return code
}

// app is lastcallctl httpbin --listen ADDRESS --max-delay D --on-term WAY.
func app() {
	way := httpbin.OnTerm(os.Args[7])
	ctx, stop := httpbin.NotifyContext(context.Background(), way)
	defer stop()
	if err := httpbin.Run(ctx, httpbin.Options{Listen: os.Args[3], OnTerm: way}); err != nil {
		println(err.Error())
		os.Exit(1)
	}
}

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
