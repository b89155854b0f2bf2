package meshconfig

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
)

// places is a test's input: what each place says.
type places struct {
	mesh       string            // the mesh config file
	proxy      string            // PROXY_CONFIG
	annotation string            // proxy.istio.io/config
	others     map[string]string // other annotations
	env        []string
	compat     string // --compat
	port       int    // --status-port
	flags      map[string]Flag
}

func (p places) input() Input {
	in := Input{MeshFile: DefaultMeshFile, AnnotationsFile: DefaultAnnotationsFile, Env: p.env, Flags: map[string]Flag{}}
	if p.compat != "" {
		in.Flags["LASTCALL_COMPAT"] = Flag{"--compat", p.compat}
	}
	if p.port != 0 {
		in.Flags["statusPort"] = Flag{"--status-port", strconv.Itoa(p.port)}
	}
	for name, f := range p.flags {
		in.Flags[name] = f
	}
	if p.proxy != "" {
		in.Env = append(in.Env, "PROXY_CONFIG="+p.proxy)
	}
	files := map[string]string{}
	if p.mesh != "" {
		in.MeshFile = "mesh.yaml"
		files["mesh.yaml"] = p.mesh
	}
	annotations := map[string]string{}
	for key, value := range p.others {
		annotations[key] = value
	}
	if p.annotation != "" {
		annotations["proxy.istio.io/config"] = p.annotation
	}
	for _, key := range sortedKeys(annotations) {
		in.AnnotationsFile = "annotations"
		files["annotations"] += fmt.Sprintf("%v=%q\n", key, annotations[key])
	}
	in.ReadFile = func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}
	return in
}

// printed returns the printed value and source of a setting.
func printed(t *testing.T, s *Settings, setting string) (value, source string) {
	t.Helper()
	for _, r := range s.rows() {
		if r.Setting == setting {
			return strings.Trim(literal(r.Value), `"`), r.Source
		}
	}
	t.Fatalf("no setting %q", setting)
	return "", ""
}

func TestWhichPlaceWins(t *testing.T) {
	const (
		termination = "terminationDrainDuration"
		minimum     = "MINIMUM_DRAIN_DURATION"
		zero        = "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"
	)
	for _, c := range []struct {
		name    string
		places  places
		setting string
		want    string
		source  string
	}{
		{"nothing set, Istio's way: fixed wait", places{compat: "istio"}, zero, "false", "default"},

		{"mesh over default", places{mesh: "defaultConfig: {terminationDrainDuration: 8s}"}, termination, "8s", "mesh file mesh.yaml"},
		{"PROXY_CONFIG over mesh", places{mesh: "defaultConfig: {terminationDrainDuration: 8s}", proxy: "terminationDrainDuration: 9s"}, termination, "9s", "PROXY_CONFIG"},
		{"annotation over all three", places{mesh: "defaultConfig: {terminationDrainDuration: 8s}", proxy: "terminationDrainDuration: 9s", annotation: "terminationDrainDuration: 2s"}, termination, "2s", "annotation proxy.istio.io/config"},
		{"a layer that says other things leaves it", places{proxy: "terminationDrainDuration: 9s", annotation: "drainDuration: 20s"}, termination, "9s", "PROXY_CONFIG"},
		{"null sets nothing", places{proxy: "terminationDrainDuration: 9s", annotation: "terminationDrainDuration: null"}, termination, "9s", "PROXY_CONFIG"},
		{"a default's value is set", places{annotation: "terminationDrainDuration: 5s"}, termination, "5s", "annotation proxy.istio.io/config"},
		{"PROXY_CONFIG as JSON", places{proxy: `{"terminationDrainDuration":"9s","statusPort":15999}`}, "statusPort", "15999", "PROXY_CONFIG"},
		{"the .proto file's names", places{annotation: "termination_drain_duration: 4s"}, termination, "4s", "annotation proxy.istio.io/config"},
		{"Go durations, as Istio's reader takes them", places{annotation: "terminationDrainDuration: 1m30s"}, termination, "1m30s", "annotation proxy.istio.io/config"},
		{"a fraction is no matter here", places{annotation: "terminationDrainDuration: 2.5s"}, termination, "2.5s", "annotation proxy.istio.io/config"},
		{"no wait at all", places{annotation: "terminationDrainDuration: 0s"}, termination, "0s", "annotation proxy.istio.io/config"},
		{"numbers in quotes, as Istio's reader takes them", places{annotation: `proxyAdminPort: "15001"`}, "proxyAdminPort", "15001", "annotation proxy.istio.io/config"},
		{"concurrency of zero is set", places{annotation: "concurrency: 0"}, "concurrency", "0", "annotation proxy.istio.io/config"},
		{"hold", places{mesh: "defaultConfig: {holdApplicationUntilProxyStarts: true}"}, "holdApplicationUntilProxyStarts", "true", "mesh file mesh.yaml"},
		{"--termination-drain-duration over all", places{annotation: "terminationDrainDuration: 20s", flags: map[string]Flag{termination: {"--termination-drain-duration", "25s"}}}, termination, "25s", "flag --termination-drain-duration"},
		{"--minimum-drain over all", places{annotation: "proxyMetadata: {MINIMUM_DRAIN_DURATION: 3s}", env: []string{"MINIMUM_DRAIN_DURATION=4s"}, flags: map[string]Flag{minimum: {"--minimum-drain", "6s"}}}, minimum, "6s", "flag --minimum-drain"},
		{"--status-port over all", places{annotation: "statusPort: 15001", port: 16020}, "statusPort", "16020", "flag --status-port"},

		{"proxyMetadata", places{annotation: "proxyMetadata: {MINIMUM_DRAIN_DURATION: 7s}"}, minimum, "7s", "proxyMetadata of annotation proxy.istio.io/config"},
		{"proxyMetadata is merged key by key", places{mesh: "defaultConfig: {proxyMetadata: {MINIMUM_DRAIN_DURATION: 15s}}", annotation: "proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'false'}"}, minimum, "15s", "proxyMetadata of mesh file mesh.yaml"},
		{"of one key the annotation's wins", places{mesh: "defaultConfig: {proxyMetadata: {MINIMUM_DRAIN_DURATION: 15s}}", annotation: "proxyMetadata: {MINIMUM_DRAIN_DURATION: 1s}"}, minimum, "1s", "proxyMetadata of annotation proxy.istio.io/config"},
		{"the container's environment over proxyMetadata", places{annotation: "proxyMetadata: {MINIMUM_DRAIN_DURATION: 7s}", env: []string{"MINIMUM_DRAIN_DURATION=3s"}}, minimum, "3s", "environment MINIMUM_DRAIN_DURATION"},
		{"an empty variable is not set", places{annotation: "proxyMetadata: {MINIMUM_DRAIN_DURATION: 7s}", env: []string{"MINIMUM_DRAIN_DURATION="}}, minimum, "7s", "proxyMetadata of annotation proxy.istio.io/config"},
		{"ParseBool's words", places{env: []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=F"}}, zero, "false", "environment EXIT_ON_ZERO_ACTIVE_CONNECTIONS"},
		{"lastcall's own by proxyMetadata", places{mesh: "defaultConfig: {proxyMetadata: {LASTCALL_QUIET_TIME: 500ms}}"}, "LASTCALL_QUIET_TIME", "500ms", "proxyMetadata of mesh file mesh.yaml"},
		{"WebSockets", places{env: []string{"LASTCALL_WEBSOCKET=close"}}, "LASTCALL_WEBSOCKET", "close", "environment LASTCALL_WEBSOCKET"},
		{"WebSockets' code", places{env: []string{"LASTCALL_WEBSOCKET_CLOSE=1012"}}, "LASTCALL_WEBSOCKET_CLOSE", "1012", "environment LASTCALL_WEBSOCKET_CLOSE"},
		{"endless types", places{env: []string{"LASTCALL_ENDLESS_TYPES=application/X-NDJSON, text/a"}}, "LASTCALL_ENDLESS_TYPES", `["application/x-ndjson","text/a"]`, "environment LASTCALL_ENDLESS_TYPES"},
		{"compat by flag", places{compat: "istio"}, "LASTCALL_COMPAT", "istio", "flag --compat"},

		{"proxyStatsMatcher is replaced whole", places{mesh: "defaultConfig: {proxyStatsMatcher: {inclusionPrefixes: [a]}}", annotation: "proxyStatsMatcher: {inclusionSuffixes: [b]}"}, "proxyStatsMatcher.inclusionPrefixes", "[]", "default"},
		{"and has the annotation's", places{mesh: "defaultConfig: {proxyStatsMatcher: {inclusionPrefixes: [a]}}", annotation: "proxyStatsMatcher: {inclusionSuffixes: [b]}"}, "proxyStatsMatcher.inclusionSuffixes", `["b"]`, "annotation proxy.istio.io/config"},
		{"its own annotation replaces a list", places{annotation: "proxyStatsMatcher: {inclusionPrefixes: [a]}", others: map[string]string{"sidecar.istio.io/statsInclusionPrefixes": "x,y"}}, "proxyStatsMatcher.inclusionPrefixes", `["x","y"]`, "annotation sidecar.istio.io/statsInclusionPrefixes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Resolve(c.places.input())
			must.Do(t, err)
			value, source := printed(t, s, c.setting)
			if value != c.want || source != c.source {
				t.Errorf("%s is %s from %s, want %s from %s", c.setting, value, source, c.want, c.source)
			}
		})
	}
}

func TestModes(t *testing.T) {
	for _, c := range []struct {
		compat, zero string
		want         drain.Mode
	}{
		{"", "", drain.ExitOnZero},
		{"", "true", drain.ExitOnZero},
		{"", "false", drain.Fixed},
		{"istio", "", drain.Fixed},
		{"istio", "true", drain.IstioExitOnZero},
		{"istio", "false", drain.Fixed},
	} {
		s, err := Resolve(Input{Env: []string{"LASTCALL_COMPAT=" + c.compat, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=" + c.zero}})
		must.Do(t, err)
		if got := s.Drain().Mode; got != c.want {
			t.Errorf("compat %q, exit on zero %q: mode %v, want %v", c.compat, c.zero, got, c.want)
		}
	}
}

func TestDrainHasEverySetting(t *testing.T) {
	s, err := Resolve(places{
		proxy: "terminationDrainDuration: 11s",
		env: []string{
			"MINIMUM_DRAIN_DURATION=12s", "TERMINATION_GRACE_PERIOD_SECONDS=90", "LASTCALL_QUIET_TIME=13s",
			"LASTCALL_LAST_CALL_MARGIN=14s", "LASTCALL_IDLE_GRACE=15s",
		},
	}.input())
	must.Do(t, err)
	want := drain.Config{
		Mode: drain.ExitOnZero, TerminationDrain: 11 * time.Second, MinimumDrain: 12 * time.Second, GracePeriod: 90 * time.Second,
		QuietTime: 13 * time.Second, Margin: 14 * time.Second, IdleGrace: 15 * time.Second, PollInterval: drain.DefaultPollInterval,
	}
	if got := s.Drain(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	s, err = Resolve(Input{})
	must.Do(t, err)
	if got := s.Drain(); got != drain.DefaultConfig() {
		t.Errorf("nothing set gives %+v, want drain's defaults", got)
	}
}

func TestEffectiveProxyConfig(t *testing.T) {
	s, err := Resolve(places{
		mesh:       "defaultConfig: {discoveryAddress: istiod.east:15012, extraStatTags: [a, b], proxyMetadata: {A: mesh, B: mesh}}",
		proxy:      "extraStatTags: [c]",
		annotation: "proxyMetadata: {B: annotation}",
	}.input())
	must.Do(t, err)
	if pc := literal(s.Proxy); pc != `{"discoveryAddress":"istiod.east:15012","extraStatTags":["c"]}` {
		t.Errorf("%s: want the fields as they are written, each of the highest layer", pc)
	}
	if s.Metadata["A"] != "mesh" || s.Metadata["B"] != "annotation" {
		t.Errorf("proxyMetadata %v, want A of the mesh, B of the annotation", s.Metadata)
	}
	got := strings.Join(s.Environ([]string{"B=own", "C=own", "A="}), " ")
	if want := "B=own C=own A=mesh"; got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("defaultConfig: {terminationDrainDuration: 5s}", "concurrency: 2", "a: b", "MINIMUM_DRAIN_DURATION=5s")
	f.Add("spec: {meshConfig: {defaultConfig: {proxyMetadata: {A: 1}}}}", `{"defaultConfig":{"tracing":{"x":[1]}}}`, "", "LASTCALL_COMPAT=istio")
	f.Add("data: {mesh: 'defaultConfig: null'}", "proxyMetadata: {proxyStatsMatcher: {inclusionRegexps: ['(']}}", "x", "=")
	f.Add("&a [*a]", "proxyMetadata: {proxyMetadata: {proxyMetadata: 1}}", "", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS=maybe")
	f.Add("a: 1\n---\nb: 2", "", "proxyMetadata:\n  proxyStatsMatcher: |\n    inclusionRegexps: [a]\n", "")
	f.Fuzz(func(t *testing.T, mesh, proxy, annotation, variable string) {
		s, err := Resolve(Input{
			MeshFile: "mesh", AnnotationsFile: "annotations", Env: []string{"PROXY_CONFIG=" + proxy, variable},
			ReadFile: func(name string) ([]byte, error) {
				if name == "mesh" {
					return []byte(mesh), nil
				}
				return fmt.Appendf(nil, "%v=%q\n", AnnotationConfig, annotation), nil
			},
		})
		if invalid := s.Drain().Validate(); invalid != nil {
			t.Errorf("resolved (error %v) to what drain refuses: %v", err, invalid)
		}
		if err := s.WriteText(&strings.Builder{}); err != nil {
			t.Error(err)
		}
		if _, err := s.MarshalJSON(); err != nil {
			t.Error(err)
		}
	})
}

func TestPortProtocol(t *testing.T) {
	for name, want := range map[string]struct {
		protocol string
		opaque   bool
	}{
		"":                  {"", false},
		"http":              {"http", false},
		"http-admin":        {"http", false},
		"HTTP2":             {"http2", true},
		"grpc-web":          {"grpc", true},
		"h2c":               {"h2c", true},
		"kubernetes.io/h2c": {"h2c", true},
		"kubernetes.io/wss": {"wss", true},
		"ws":                {"ws", true},
		"https":             {"https", true},
		"tcp-gossip":        {"tcp", true},
		"redis":             {"redis", true},
		"web":               {"", false},
		"grpcish":           {"", false},
	} {
		if got := PortProtocol(name); got != want.protocol || IsOpaquePort(got) != want.opaque {
			t.Errorf("%q: %q, opaque %v; want %q, %v", name, got, IsOpaquePort(got), want.protocol, want.opaque)
		}
	}
}

func TestScrapeTarget(t *testing.T) {
	for _, tt := range []struct {
		name        string
		annotations string
		env         []string
		want        string
		warning     string
	}{
		{name: "nothing set"},
		{name: "annotations", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/port="8080"` + "\n" + `prometheus.io/path="/m"`, want: "http://127.0.0.1:8080/m"},
		{name: "defaults", annotations: `prometheus.io/scrape="true"`, want: "http://127.0.0.1:80/metrics"},
		{name: "disabled", annotations: `prometheus.io/scrape="false"` + "\n" + `prometheus.io/port="8080"`},
		{name: "our own port", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/port="15020"`},
		{name: "the injector's variable wins", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/port="1"`,
			env: []string{`ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"true","path":"metrics","port":"9100"}`}, want: "http://127.0.0.1:9100/metrics"},
		{name: "bad port", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/port="http"`, warning: "must be a port"},
		{name: "https", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/scheme="https"`, warning: "must be http"},
		{name: "bad variable", env: []string{`ISTIO_PROMETHEUS_ANNOTATIONS=true`}, warning: "ISTIO_PROMETHEUS_ANNOTATIONS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Resolve(Input{Env: tt.env, AnnotationsFile: "annotations", ReadFile: func(string) ([]byte, error) { return []byte(tt.annotations), nil }})
			must.Do(t, err)
			if s.ScrapeTarget.Value != tt.want {
				t.Errorf("target %q; want %q", s.ScrapeTarget.Value, tt.want)
			}
			var warnings []string
			for _, w := range s.Warnings {
				warnings = append(warnings, w.String())
			}
			if got := strings.Join(warnings, "\n"); tt.warning == "" && got != "" || !strings.Contains(got, tt.warning) {
				t.Errorf("warnings %q; want %q", got, tt.warning)
			}
		})
	}
}
