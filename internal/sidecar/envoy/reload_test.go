package envoy

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

var reloads = flag.Int("reloads", 3, "of Envoy under load")

// fromFile is an Envoy whose configuration is a file with these routes. parentShutdown is in whole seconds.
func fromFile(t *testing.T, parentShutdown time.Duration) (r *running, write func(routes ...Route)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "envoy.json")
	var admin string
	write = func(routes ...Route) {
		t.Helper()
		b, err := Bootstrap{Inbound: routes}.Render(admin)
		must.Do(t, err)
		must.Do(t, os.WriteFile(file, b, 0o600))
	}
	r = start(t, func(o *Options) {
		admin = o.Admin
		write(o.Bootstrap.Inbound...)
		o.Config, o.ParentShutdown = file, parentShutdown
	})
	return r, write
}

// awaitEpoch waits until the Envoy of this epoch serves.
func (r *running) awaitEpoch(epoch int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	must.Do(r.t, r.admin.await(ctx, discard, nil, func(ctx context.Context) error { return r.admin.servesEpoch(ctx, epoch) }))
	polltest.Eventually(r.t, "the next Envoy has started", func() bool { return strings.Count(r.log.String(), "Envoy started") > epoch }, r.log)
}

// No request is lost in reloads under load, on new connections and on a kept one. It is in use all the time: the end of
// the previous Envoy closes idle connections, at which a request may be on its way.
func TestReload(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.ParentShutdown = 4 * time.Second })
	clients := []*http.Client{{Transport: &http.Transport{MaxConnsPerHost: 1}}, {Transport: &http.Transport{DisableKeepAlives: true}}}
	ctx, cancel := context.WithCancel(context.Background())
	load := make(chan *loadtest.Load, 1)
	go func() {
		load <- loadtest.AtRate(ctx, 50, func(i int) string {
			// net/http does not repeat a POST.
			request, err := http.NewRequest(http.MethodPost, "http://"+r.listen+"/", strings.NewReader("some"))
			if err != nil {
				return err.Error()
			}
			return loadtest.Send(clients[i%len(clients)], request)
		})
	}()
	for epoch := range *reloads {
		must.Do(t, r.Reload())
		r.awaitEpoch(epoch + 1)
	}
	cancel()
	l := <-load
	clients[0].CloseIdleConnections()
	if t.Logf("%d reloads: %v", *reloads, l); l.Failed() > 0 || l.Requests == 0 {
		t.Errorf("%v\n%s", l, r.log)
	}
}

// A changed configuration file is read without a request. The previous Envoy answers what it has begun.
func TestConfigurationChanges(t *testing.T) {
	t.Parallel()
	r, write := fromFile(t, 30*time.Second)
	old := r.busy()
	second := nettest.FreeAddress(t, "127.0.0.1")
	write(Route{r.listen, r.app.address, "http"}, Route{second, r.app.address, "http"})
	r.awaitEpoch(1)
	r.wantCloses(false)
	if _, body := func() (any, string) { c := loadtest.Keep(t, second, patience); c.Ask("/"); return c.Answer(t) }(); body != "done" {
		t.Errorf("the new listener answers %q", body)
	}
	r.app.let()
	if resp, body := old.Answer(t); !resp.Close || body != "done" {
		t.Error(resp, body)
	}
}

// A request that is longer than parentShutdownDuration is cut, and named.
func TestReloadNamesWhatItCuts(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.ParentShutdown = 2 * time.Second })
	idle, long := r.idle(), r.busy()
	must.Do(t, r.Reload())
	if resp, err := http.ReadResponse(long.R, nil); err == nil {
		t.Error(resp)
	}
	if _, err := idle.R.ReadByte(); err != io.EOF {
		t.Error(err)
	}
	named := "a request in flight was cut at the end of the previous Envoy\",\"peer\":\"" + long.LocalAddr().String()
	polltest.Eventually(t, "the request is named", func() bool { return strings.Contains(r.log.String(), named) }, r.log)
	if strings.Contains(r.log.String(), idle.LocalAddr().String()) {
		t.Error(r.log)
	}
}

// A configuration that Envoy refuses, at once or when it has closed its predecessor's admin API, leaves an Envoy with the
// previous one: it serves, its drain waits for requests from before and after, and the next reload works.
func TestReloadFails(t *testing.T) {
	t.Parallel()
	r, write := fromFile(t, 30*time.Second)
	first := Route{r.listen, r.app.address, "http"}
	write(Route{r.listen, r.app.address, "http"}, Route{r.listen, r.app.address, "http"})
	polltest.Eventually(t, "Envoy refuses the configuration", func() bool { return strings.Contains(r.log.String(), "Envoy not reloaded") }, r.log)
	_ = r.wantCloses(false).Close()
	old := r.busy()
	write(first, Route{"192.0.2.1:80", r.app.address, "http"})
	polltest.Eventually(t, "Envoy cannot listen", func() bool { return strings.Count(r.log.String(), "Envoy not reloaded") == 2 }, r.log)
	r.awaitEpoch(1)
	_ = r.wantCloses(false).Close()
	after := r.busy()
	r.awaitActivity(2, 2)
	o := r.held()
	r.app.let()
	o.endsWith(old, after)
	if left, _ := filepath.Glob("/dev/shm/*" + strconv.FormatUint(uint64(r.hot.base), 10) + "*"); len(left) > 1 {
		t.Error(left)
	}
}

// A termination soon after a reload drains both Envoys.
func TestDrainAfterReload(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.ParentShutdown = time.Minute })
	old := r.busy()
	must.Do(t, r.Reload())
	r.awaitEpoch(1)
	o := r.held()
	must.Do(t, r.Reload()) // refused
	r.app.let()
	o.endsWith(old)
	r.wantGone()
	polltest.Eventually(t, "the previous Envoy ends", r.reloaded().HasExited, r.log)
}

// An Envoy that reloads leaves a connection to its admin API unanswered. The next attempt finds its successor.
func TestUnansweredAttempt(t *testing.T) {
	var hung atomic.Bool
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Serve(t, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hung.Swap(true) {
			<-r.Context().Done()
		}
		fmt.Fprint(w, `{"state": "LIVE", "command_line_options": {"restart_epoch": 1}}`)
	}))
	a, err := NewAdmin(ln.Addr().String())
	must.Do(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must.Do(t, a.await(ctx, discard, nil, func(ctx context.Context) error { return a.servesEpoch(ctx, 1) }))
}
