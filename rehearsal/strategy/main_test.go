package strategy

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/rehearsal/httpbin"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// The test binary under this name stands in for lastcallctl's app: the same
// package on the same flags.
func TestMain(m *testing.M) {
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

func env(t *testing.T) *Env {
	t.Helper()
	n := node.New()
	t.Cleanup(n.Close)
	self := ""
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if self = filepath.Join(dir, "lastcallctl"); checkProgram(self) == nil {
			break
		}
	}
	return &Env{Node: n, Ports: &node.Ports{}, Programs: Programs{Self: self}, Grace: 5 * time.Second, MaxDelay: 10 * time.Second}
}
