package envoy

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// configured is a real Envoy with a configuration that change has made of the
// bootstrap.
func configured(t *testing.T, change func(config m, listener func(name, direction, at string) m)) *running {
	t.Helper()
	return start(t, func(o *Options) {
		var config m
		b, err := o.Bootstrap.Render(o.Admin)
		must.Do(t, err)
		must.Do(t, json.Unmarshal(b, &config))
		filters := config["static_resources"].(map[string]any)["listeners"].([]any)[0].(map[string]any)["filter_chains"]
		change(config, func(name, direction, at string) m {
			where, err := address(at)
			must.Do(t, err)
			return m{"name": name, "traffic_direction": direction, "address": where, "filter_chains": filters}
		})
		if b, err = json.Marshal(config); err != nil {
			t.Fatal(err)
		}
		o.Config = filepath.Join(t.TempDir(), "envoy.json")
		must.Do(t, os.WriteFile(o.Config, b, 0o600))
	})
}

func listeners(config m, list ...m) {
	config["static_resources"].(map[string]any)["listeners"] = list
}

func shown(config m, patterns ...m) {
	config["stats_config"] = m{"stats_matcher": m{"inclusion_list": m{"patterns": patterns}}}
}

// ours is an address of the loopback network that no other test uses.
func ours(port int) string {
	return fmt.Sprintf("127.%d.%d.7:%d", 1+os.Getpid()%200, 1+os.Getpid()/200%200, port)
}

// What counts is chosen by role and port.
func TestSidecar(t *testing.T) {
	r := configured(t, func(config m, listener func(name, direction, at string) m) {
		listeners(config,
			listener("worker_api", "INBOUND", ours(8080)),
			listener("admin-eu", "INBOUND", ours(8081)),
			listener("virtualOutbound", "OUTBOUND", ours(8082)),
			listener("health", "UNSPECIFIED", ours(15021)),
			listener("scrapes", "UNSPECIFIED", ours(15090)),
		)
	})
	for _, port := range []int{8082, 15021, 15090} {
		r.listen = ours(port)
		r.busy()
	}
	r.awaitActivity(0, 0)
	r.listen = ours(8080)
	api := r.busy()
	r.listen = ours(8081)
	eu := r.busy()
	r.awaitActivity(2, 2)
	o := r.held()
	_ = api.Close()
	o.stillThere(t)
	for _, port := range []int{8082, 15021} {
		r.listen = ours(port)
		_ = r.wantCloses(false).Close()
	}
	_ = eu.Close()
	o.want(t, drain.Clean)
}

// A gateway's listeners say no direction: all are drained.
func TestGateway(t *testing.T) {
	r := configured(t, func(config m, listener func(name, direction, at string) m) {
		listeners(config, listener("http", "UNSPECIFIED", ours(8080)))
	})
	r.listen = ours(8080)
	busy := r.busy()
	o := r.held()
	_ = r.wantCloses(true).Close()
	r.app.let()
	o.endsWith(busy)
}

// Whatever the matcher hides, a request in flight is not ended, and what is
// missing causes a warning at the start.
func TestPartlyHidden(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		patterns []m
		hidden   string // named at the start
	}{
		"all of http":            {[]m{{"prefix": "http."}}, ""},
		"requests only":          {[]m{{"suffix": "downstream_rq_active"}}, ""},
		"this prefix only":       {[]m{{"prefix": "http.inbound_"}}, ""},
		"Istio's EZAC":           {[]m{{"suffix": "downstream_cx_active"}}, "downstream_rq_active"},
		"nothing":                {[]m{{"prefix": "nothing."}}, "downstream_rq_active"},
		"another's requests":     {[]m{{"exact": "http.admin.downstream_rq_active"}}, "downstream_rq_active"},
		"listeners, not of http": {[]m{{"prefix": "listener."}}, "downstream_rq_active"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := configured(t, func(config m, _ func(name, direction, at string) m) { shown(config, tt.patterns...) })
			if warned := strings.Contains(r.log.String(), "proxyStatsMatcher") && strings.Contains(r.log.String(), "hides the gauges"); warned != (tt.hidden != "") || !strings.Contains(r.log.String(), tt.hidden) {
				t.Errorf("warned at the start: %v\n%s", warned, r.log)
			}
			idle, busy := r.idle(), r.busy()
			if tt.hidden == "" {
				r.awaitActivity(2, 1)
			} else {
				r.awaitActivity(2, 2)
			}
			o := r.held()
			r.app.let()
			o.answers(busy)
			if tt.hidden != "" {
				o.stillThere(t) // the idle one cannot be distinguished
				_ = idle.Close()
			}
			o.want(t, drain.Clean)
		})
	}
}

// A unix socket's connections are not in the kernel's table of TCP: Envoy's own
// numbers show.
func TestUnixListener(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "in")
	r := configured(t, func(config m, listener func(name, direction, at string) m) {
		listeners(config, listener("in", "INBOUND", "unix:"+path))
		shown(config, m{"suffix": "_active"}, m{"suffix": "_total"})
	})
	c, err := net.Dial("unix", path)
	must.Do(t, err)
	defer c.Close()
	if _, err := io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: app\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-r.app.requests
	o := r.held()
	r.app.let()
	b := make([]byte, 15)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "HTTP/1.1 200 OK" {
		t.Errorf("%q, %v", b, err)
	}
	o.want(t, drain.Clean)
}

// The port that the kernel has chosen is read.
func TestChosenPort(t *testing.T) {
	r := configured(t, func(config m, listener func(name, direction, at string) m) {
		listeners(config, listener("in", "INBOUND", "127.0.0.1:0"))
	})
	ports := r.laidOut().ports
	if len(ports) != 1 || ports[0] == 0 {
		t.Fatal(ports)
	}
	r.listen = fmt.Sprintf("127.0.0.1:%d", ports[0])
	r.busy()
	r.awaitActivity(1, 1)
}

func TestTwoThousandListeners(t *testing.T) {
	const n = 2000
	r := configured(t, func(config m, listener func(name, direction, at string) m) {
		var list []m
		for i := range n {
			list = append(list, listener(fmt.Sprintf("in%d", i), "INBOUND", ours(10_000+3*i)))
		}
		listeners(config, list...)
	})
	if got := len(r.laidOut().ports); got != n {
		t.Fatalf("%d ports", got)
	}
	r.listen = ours(10_000 + 3*(n-1))
	c := r.busy()
	r.awaitActivity(1, 1)
	o := r.held()
	r.app.let()
	if resp, body := c.Answer(t); body != "done" { // Envoy may not have announced the close on all listeners yet
		t.Error(resp, body)
	}
	_ = c.Close()
	o.want(t, drain.Clean)
}

var update = flag.Bool("update", false, "write the golden files")

func TestBootstrap(t *testing.T) {
	got, err := Bootstrap{
		Inbound: []Route{
			{"127.0.0.1:15006", "127.0.0.1:8080", "auto"},
			{"[::1]:15007", "[::1]:8081", "http"},
			{":15008", "localhost:8082", "tcp"},
			{":15006", "", "auto"},
		},
		AccessLog: "/dev/stdout",
	}.Render("unix:/run/envoy")
	must.Do(t, err)
	var text bytes.Buffer
	must.Do(t, json.Indent(&text, got, "", "  "))
	got = text.Bytes()
	const golden = "testdata/bootstrap.json"
	if *update {
		must.Do(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	must.Do(t, err)
	if !bytes.Equal(got, want) {
		t.Errorf("the bootstrap is another than %s (go test -update writes it):\n%s", golden, got)
	}
}

func TestBadBootstrap(t *testing.T) {
	for name, tt := range map[string]struct {
		b     Bootstrap
		admin string
		want  string
	}{
		"admin":   {Bootstrap{}, "15000", "admin: address 15000"},
		"port":    {Bootstrap{}, "127.0.0.1:http", `port of "127.0.0.1:http"`},
		"inbound": {Bootstrap{Inbound: []Route{{"nowhere", "127.0.0.1:1", "http"}}}, "127.0.0.1:1", "inbound nowhere"},
		"app":     {Bootstrap{Inbound: []Route{{"127.0.0.1:1", "127.0.0.1:70000", "http"}}}, "127.0.0.1:1", "app 127.0.0.1:70000"},
	} {
		if _, err := tt.b.Render(tt.admin); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
}

// Where no Envoy runs, the log states at once what Start waits for, and Start fails after the time that is set.
func TestAttachWithoutEnvoy(t *testing.T) {
	log, at := &logstest.Buffer{}, nettest.FreeAddress(t, "127.0.0.1")
	const limit = 300 * time.Millisecond
	began := time.Now()
	_, err := Start(t.Context(), Options{Admin: at, Attach: true, StartTimeout: limit, Log: slog.New(slog.NewTextHandler(log, nil))})
	if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "envoy's admin at "+at) || took < limit {
		t.Errorf("%v after %v", err, took)
	}
	if n := strings.Count(log.String(), "waiting for Envoy to become ready"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log)
	}
}
