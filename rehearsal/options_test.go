package rehearsal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
)

// Each wrong value is named with what is accepted, before anything is started.
func TestOptions(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"strategy", func(o *Options) { o.Strategies = []string{"istio"} }, `unknown strategy "istio": must be one of istio-default, `},
		{"short delay", func(o *Options) { o.Delay = 0 }, "--delay is 0s: must be 1s to 10m0s"},
		{"fraction of a second", func(o *Options) { o.Grace = 1500 * time.Millisecond }, "--grace is 1.5s: must be 1s to 1h0m0s in whole seconds"},
		{"propagation", func(o *Options) { o.Propagation = -1 }, "--propagation is -1ns: must be 0s to 1m0s"},
		{"gateway", func(o *Options) { o.Gateway = "nginx" }, `--gateway is "nginx": must be built-in or envoy`},
		{"lastcall", func(o *Options) { o.Lastcall = "/no/such" }, "--lastcall: stat /no/such"},
		{"proxy", func(o *Options) { o.Proxy = "nginx" }, `--proxy is "nginx": must be pipe, envoy or istio-agent`},
		{"logs", func(o *Options) { o.KeepLogs = full }, "must be empty, or not exist yet"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Delay: DefaultDelay, Grace: DefaultGrace, Self: "/no/such/lastcallctl"}
			tt.change(&o)
			_, err := Run(t.Context(), o)
			var option load.OptionError
			if !errors.As(err, &option) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}
