// Package httpbintest makes a test binary its own app: under the name lastcallctl it is the built-in httpbin.
package httpbintest

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
	"github.com/lastcall-dev/lastcall/rehearsal/httpbin"
)

// Main runs the tests of m, in which the program lastcallctl is the app. A goroutine that outlives them is a failure.
func Main(m *testing.M) {
	programtest.Main(verified{m}, map[string]func(){"lastcallctl": app})
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

// app is lastcallctl httpbin --listen ADDRESS --max-delay D --on-term WAY: the same package with the same flags.
func app() {
	way := httpbin.OnTerm(os.Args[7])
	ctx, stop := httpbin.NotifyContext(context.Background(), way)
	defer stop()
	if err := httpbin.Run(ctx, httpbin.Options{Listen: os.Args[3], OnTerm: way}); err != nil {
		println(err.Error())
		os.Exit(1)
	}
}
