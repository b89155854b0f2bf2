package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
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
	got, err := wrk.parse(wrkOutput)
	want := result{requests: 512345, seconds: 5, latencies: values{p50: 567e-6, p99: 2940e-6}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, lost := range []string{
		"  Socket errors: connect 0, read 3, write 0, timeout 0\n",
		"  Non-2xx or 3xx responses: 17\n",
	} {
		if _, err := wrk.parse(wrkOutput + lost); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(lost)) {
			t.Errorf("with %q: error %v", lost, err)
		}
	}
	if _, err := wrk.parse("unable to connect"); err == nil {
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
	got, err := h2load.parse(h2loadOutput)
	want := result{requests: 511726, seconds: loadTime.Seconds(), latencies: values{mean: 4910e-6}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	lost := strings.ReplaceAll(h2loadOutput, "511726 succeeded, 0 failed", "511725 succeeded, 1 failed")
	if _, err := h2load.parse(lost); err == nil || !strings.Contains(err.Error(), "1 failed") {
		t.Errorf("one failed: error %v", err)
	}
	if _, err := h2load.parse(""); err == nil {
		t.Error("no counts: no error")
	}
}

func TestParseSaysWhatIsPossible(t *testing.T) {
	for _, row := range []struct{ args, says string }{
		{"--against bin/lastcall --rounds 5", "at least 6"},
		{"quick --against bin/lastcall", "one round"},
		{"--only envoi", "there are direct, lastcall-http"},
		{"--rounds 0", "at least 1"},
		{"http3", "there are http1, short, bodies, tls"},
		{"--rounds 1 http2", "before the flags"},
		{"--only lastcall-http --against /nowhere/lastcall", "make build"},
	} {
		if _, err := parse(strings.Fields(row.args)); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: error %v; want one with %q", row.args, err, row.says)
		}
	}
}

func TestTableShowsMedians(t *testing.T) {
	round := func(rate, cpu, core float64) values {
		return values{requestRate: rate, p50: 0.001, p99: 0.002, cpuPerRequest: cpu, coreUsed: core, idleMemory: 15.5e6}
	}
	o := outcome{
		table: tables[0], failed: []string{"nginx in round 1: it ended"},
		samples: map[row][]values{
			{"", "direct"}:        {{requestRate: 100000}},
			{"", "lastcall-http"}: {round(40000, 25e-6, 1), round(60000, 15e-6, 1), round(50000, 20e-6, 1)},
			{"", "envoy"}:         {round(10000, 50e-6, 0.5), nil, round(12000, 50e-6, 0.5)},
			{"", "nginx"}:         {nil, nil, nil},
		},
	}
	o.subjects = slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return o.samples[row{"", s.name}] == nil })
	var document strings.Builder
	o.write(&document)
	for line, want := range map[string]bool{
		"| no proxy | 100,000 | 100,000 to 100,000 | – | – | – | – | – |\n":                                    true,
		"| **lastcall, HTTP** | 50,000 | 40,000 to 60,000 | 1.00 ms | 2.00 ms | 20.0 µs | 100 % | 15.5 MB |\n": true,
		"| nginx | – | – | – | – | – | – | – |\n":                                                              true,
		"- Aim missed: lastcall, HTTP: resident idle at most 15.0 MB: 15.5 MB.\n":                              true,
		"requests/s at least 4 × Envoy":                                                                        false, // it is reached
		"- Failed: nginx in round 1: it ended.\n":                                                              true,
	} {
		if strings.Contains(document.String(), line) != want {
			t.Errorf("the document has %q: %v, want %v:\n%s", line, !want, want, &document)
		}
	}
}

// Each table has its marks in BENCHMARKS.md, and each mark its table.
func TestBenchmarksHasEachTable(t *testing.T) {
	document, err := os.ReadFile("../../BENCHMARKS.md")
	must.Do(t, err)
	var got []string
	for _, found := range regexp.MustCompile(`(?m)^<!-- bench: ([a-z0-9-]+) -->$`).FindAllSubmatch(document, -1) {
		got = append(got, string(found[1]))
	}
	want := slices.Sorted(slices.Values(tableNames()))
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("marks %v, tables %v", got, want)
	}
	for _, mark := range []string{"<!-- bench: ", "<!-- /bench -->"} {
		if n := strings.Count(string(document), mark); n != len(want) {
			t.Errorf("%d of %q, want %d", n, mark, len(want))
		}
	}
}

func TestFillLeavesTheRest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	must.Do(t, os.WriteFile(path, []byte("# A\n<!-- bench: a -->\nold\n<!-- /bench -->\nprose\n<!-- bench: b -->\n<!-- /bench -->\nend\n"), 0o600))
	for _, name := range []string{"a", "b", "a"} {
		must.Do(t, fillFile(path, name, "new $1 "+name+"\n"))
	}
	got, err := os.ReadFile(path)
	want := "# A\n<!-- bench: a -->\nnew $1 a\n<!-- /bench -->\nprose\n<!-- bench: b -->\nnew $1 b\n<!-- /bench -->\nend\n"
	if err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if err := fillFile(path, "c", ""); err == nil || !strings.Contains(err.Error(), "<!-- bench: c -->") {
		t.Errorf("no such mark: error %v", err)
	}
}

// The interval of the sign test: of 6 pairs all, of 9 without the outermost at each end (both ends together at most 5 %).
func TestVerdictKnowsTheNoise(t *testing.T) {
	for _, row := range []struct {
		ratios    []float64
		low, high float64
		words     string
	}{
		{[]float64{1.1, 1.2, 1.3, 1.1, 1.2, 1.4}, 1.1, 1.4, "**worse**"},
		{[]float64{0.9, 0.8, 0.7, 0.9, 0.8, 0.6}, 0.6, 0.9, "better"},
		{[]float64{0.99, 1.2, 1.3, 1.1, 1.2, 1.4}, 0.99, 1.4, "no difference seen (-1.0 to +40.0 %)"},
		{[]float64{0.5, 1.2, 1.3, 1.1, 1.2, 1.4, 1.2, 1.2, 1.2}, 1.1, 1.3, "**worse**"},
	} {
		low, high, words := compare(cpuPerRequest, row.ratios)
		if low != row.low || high != row.high || words != row.words {
			t.Errorf("%v: %g to %g, %q; want %g to %g, %q", row.ratios, low, high, words, row.low, row.high, row.words)
		}
	}
	if _, _, words := compare(requestRate, []float64{1.1, 1.1, 1.1, 1.1, 1.1, 1.1}); words != "better" {
		t.Errorf("more requests/s: %q", words)
	}
}

// A peer that fails is recorded, and the others continue; after an interruption what was measured is there.
func TestMeasureSurvivesFailures(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	made := &table{name: "test", subjects: []string{"direct", "envoy"}, cases: []load{{}}, columns: []column{middle(p50)}}
	turns := 0
	b := &bench{rounds: 5, subjects: subjects}
	o := b.measure(ctx, made, func(_ context.Context, _ *table, _ load, s subject) (values, error) {
		if turns++; turns == 7 {
			interrupt()
		}
		if s.name == "envoy" {
			return nil, errors.New("it ended\nwith much to read")
		}
		return values{p50: 1}, nil
	})
	if got := len(o.rounds("", "direct", p50)); got < 3 || got == b.rounds || len(o.failed) != failures+1 || !strings.HasSuffix(o.failed[failures], "interrupted") || !strings.HasSuffix(o.failed[0], "it ended") {
		t.Errorf("%d rounds, failed %q", got, o.failed)
	}
}

// Every peer's configurations are accepted by the real program, and pass requests on.
func TestPeersPassRequestsOn(t *testing.T) {
	files := t.TempDir()
	must.Do(t, writeFiles(files))
	for _, s := range subjects {
		for _, p := range []place{{}, {HTTP2: true}, {TLS: filepath.Join(files, "tls.pem")}} {
			if s.ours || s.command == nil || p.TLS != "" && s.name == "envoy" || p.HTTP2 && s.name == "haproxy-tcp" {
				continue // lastcall's own tests are elsewhere
			}
			t.Run(fmt.Sprintf("%s/HTTP2=%t,TLS=%t", s.name, p.HTTP2, p.TLS != ""), func(t *testing.T) {
				served := backend
				if p.HTTP2 && !s.http1 {
					served = backend2
				}
				peers.Need(t, s.peer)
				peers.Need(t, served.peer)
				p.Files, p.Clients = files, fewestClients
				app, err := start(t.Context(), served, 0, place{Files: files, Clients: fewestClients, HTTP2: served.name == backend2.name})
				must.Do(t, err)
				defer app.stop()
				_, err = app.idle()
				must.Do(t, err)
				p.Backend = app.port
				proxy, err := start(t.Context(), s, 0, p)
				must.Do(t, err)
				if used, err := proxy.idle(); err != nil || used.resident < 1e6 || used.open < 3 {
					t.Errorf("%+v, %v", used, err)
				}
				proxy.stop()
				if proxy.running.Err() == nil {
					t.Error("still runs after stop")
				}
			})
		}
	}
}

// A quick run leaves out other proxies, but never lastcall.
func TestQuickHasOurs(t *testing.T) {
	b := &bench{quick: true}
	for _, name := range quickSubjects {
		b.subjects = append(b.subjects, subjects[slices.Index(subjectNames(), name)])
	}
	for _, table := range tables {
		if !slices.ContainsFunc(b.of(table), func(s subject) bool { return s.ours }) {
			t.Errorf("a quick run of %s has no row of lastcall", table.name)
		}
	}
}
