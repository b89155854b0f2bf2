package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/peers"
)

const wrkOutput = `Running 5s test @ http://127.0.0.1:8080/get
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   691.20us    1.02ms  31.45ms   97.93%
    Req/Sec   103.04k     9.42k  115.28k    84.00%
  Latency Distribution
     50%  567.00us
     75%  685.00us
     90%    0.93ms
     99%    2.94ms
  512345 requests in 5.00s, 99.56MB read
Requests/sec: 102469.00
Transfer/sec:     19.91MB
`

func TestParseWrk(t *testing.T) {
	got, err := parseWrk(wrkOutput)
	want := load{requests: 512345, elapsed: 5 * time.Second, p50: 567 * time.Microsecond, p99: 2940 * time.Microsecond}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, lost := range []string{
		"  Socket errors: connect 0, read 3, write 0, timeout 0\n",
		"  Non-2xx or 3xx responses: 17\n",
	} {
		if _, err := parseWrk(wrkOutput + lost); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(lost)) {
			t.Errorf("with %q: error %v", lost, err)
		}
	}
	if _, err := parseWrk("unable to connect"); err == nil {
		t.Error("no total: no error")
	}
}

const h2loadOutput = `starting benchmark...
spawning thread #0: 16 total client(s). Timing-based test with 0s of warm-up time and 5s of main duration for measurements.
Main benchmark duration is over for thread #0. Stopping all clients.

finished in 5.01s, 102345.20 req/s, 4.20MB/s
requests: 511726 total, 512238 started, 511726 done, 511726 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 511726 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 21.00MB (22020096) total, 4.88MB (5117260) headers (space savings 95.00%), 27.00MB (28311552) data
                     min         max         mean         sd        +/- sd
time for request:      120us     30.20ms      4.91ms      1.10ms    70.00%
time for connect:      120us      1.20ms       500us       100us    70.00%
`

func TestParseH2load(t *testing.T) {
	got, err := parseH2load(h2loadOutput, 5*time.Second)
	want := load{requests: 511726, elapsed: 5 * time.Second, mean: 4910 * time.Microsecond}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	lost := strings.ReplaceAll(h2loadOutput, "511726 succeeded, 0 failed", "511725 succeeded, 1 failed")
	if _, err := parseH2load(lost, time.Second); err == nil || !strings.Contains(err.Error(), "1 failed") {
		t.Errorf("one failed: error %v", err)
	}
	if _, err := parseH2load("", time.Second); err == nil {
		t.Error("no counts: no error")
	}
}

func TestParseSaysWhatIsPossible(t *testing.T) {
	for _, row := range []struct{ args, says string }{
		{"--only before-http", "needs --before FILE"},
		{"--only envoi", "there are direct, relay, lastcall-http"},
		{"--rounds 0", "at least 1"},
		{"--duration 1500ms", "whole seconds"},
		{"--connections 0", "1 to 4096"},
		{"--load-core 0", "two cores"},
		{"--held 1", "2 to 100000"},
		{"--starts 0", "1 to 1000"},
		{"http3", "there are http1, http2"},
		{"--rounds 1 http2", "before the flags"},
		{"--only lastcall-http --lastcall /nowhere/lastcall", "make build"},
	} {
		peers.Need(t, "nginx")
		if _, err := parse(strings.Fields(row.args)); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: error %v; want one with %q", row.args, err, row.says)
		}
	}
}

func TestTableShowsMedians(t *testing.T) {
	round := func(requests int, cpu time.Duration) sample {
		return sample{load: load{requests: requests, elapsed: time.Second, p50: time.Millisecond, p99: 2 * time.Millisecond}, cpu: cpu, idle: 10e6, loaded: 12e6}
	}
	samples := map[string][]sample{
		"lastcall-http": {round(40000, time.Second), round(60000, time.Second), round(50000, time.Second)},
		"envoy":         {round(10000, time.Second/2), round(9000, time.Second/2), round(12000, time.Second/2)},
	}
	measured := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return samples[s.name] == nil })
	var out strings.Builder
	printTable(&out, measured, samples)
	printRatios(&out, samples)
	printCaution(&out, measured, samples)
	for _, line := range []string{
		"| lastcall, HTTP | 50000 | 40000 to 60000 | 1.00 ms | 2.00 ms | 20.0 µs | 100 % | 10.0 MB | 12.0 MB |\n",
		"- lastcall-http: 5.00 times Envoy's requests/s, 2.50 times as many per second of processor time\n",
		"- Caution: envoy had only 50 % of its core.",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("lacks %q:\n%s", line, &out)
		}
	}
}

// Every peer's configurations are accepted by the real program, pass requests on, and it ends at SIGTERM.
func TestPeersPassRequestsOn(t *testing.T) {
	for _, of := range tables {
		if of.name != "http1" && of.name != "http2" {
			continue
		}
		http2 := of.name == "http2"
		apps := map[string]*process{}
		for _, s := range of.apps {
			app, err := start(t.Context(), s, peers.Need(t, s.peer), 0, place{Dir: t.TempDir(), HTTP2: s.name == backend2.name})
			if err != nil {
				t.Fatal(err)
			}
			defer app.stop()
			apps[s.name] = app
		}
		for _, s := range subjects {
			if !slices.Contains(of.subjects, s.name) || s.peer == "" || s.optional {
				continue // lastcall's own tests are elsewhere
			}
			app := apps[backend.name]
			if speaksHTTP2(s) && http2 {
				app = apps[backend2.name]
			}
			t.Run(of.name+"/"+s.name, func(t *testing.T) { passesOn(t, s, place{Dir: t.TempDir(), Backend: app.port, HTTP2: http2}) })
		}
	}
}

func passesOn(t *testing.T, s subject, p place) {
	proxy, err := start(t.Context(), s, peers.Need(t, s.peer), 0, p)
	if err != nil {
		t.Fatal(err)
	}
	if memory, err := proxy.resident(); err != nil || memory < 1e6 {
		t.Errorf("resident memory %d, %v", memory, err)
	}
	if open, err := proxy.descriptors(); err != nil || open < 3 {
		t.Errorf("%d descriptors, %v", open, err)
	}
	if _, err := proxy.cpu(); err != nil {
		t.Error(err)
	}
	proxy.stop()
	select {
	case <-proxy.done:
	default:
		t.Error("still runs after stop")
	}
}
