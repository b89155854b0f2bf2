package meshconfig

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// TestBadInput: every error names the field, the value, the place, and what
// is accepted; none hides another.
func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		name   string
		places places
		want   []string
	}{
		{"a number for a duration", places{annotation: "proxyMetadata:\n  A: b\nterminationDrainDuration: 30\n"},
			[]string{"terminationDrainDuration is 30 (annotation proxy.istio.io/config, line 3): must be a duration of 0s or more with its unit, such as 5s or 1m30s"}},
		{"a blank in a duration", places{mesh: "defaultConfig:\n  terminationDrainDuration: 5 s\n"},
			[]string{`defaultConfig.terminationDrainDuration is "5 s" (mesh file mesh.yaml, line 2): must be a duration of 0s or more with its unit, such as 5s or 1m30s`}},
		{"a negative duration", places{proxy: "terminationDrainDuration: -1s"},
			[]string{`terminationDrainDuration is "-1s" (PROXY_CONFIG, line 1): must be a duration of 0s or more`}},
		{"a fraction of drainDuration", places{proxy: "drainDuration: 1.5s"},
			[]string{`drainDuration is "1.5s" (PROXY_CONFIG, line 1): must be a duration of whole seconds, at least 1s, such as 45s`}},
		{"no drainDuration", places{proxy: "drainDuration: 0s"}, []string{`drainDuration is "0s"`}},
		{"a port too high", places{annotation: "statusPort: 70000"}, []string{"statusPort is 70000 (annotation proxy.istio.io/config, line 1): must be a port number, 1 to 65535"}},
		{"a port of zero", places{annotation: "proxyAdminPort: 0"}, []string{"proxyAdminPort is 0 (annotation proxy.istio.io/config, line 1): must be a port number, 1 to 65535"}},
		{"a port by flag", places{port: -1}, []string{`--status-port "-1": must be a port number`}},
		{"words for a number", places{annotation: "concurrency: two"}, []string{`concurrency is "two" (annotation proxy.istio.io/config, line 1): must be a whole number of worker threads`}},
		{"a word for a boolean", places{annotation: "holdApplicationUntilProxyStarts: maybe"}, []string{`holdApplicationUntilProxyStarts is "maybe"`, "must be true, false or null"}},
		{"a string for a list", places{annotation: "proxyStatsMatcher:\n  inclusionPrefixes: [a]\n  inclusionRegexps: .*\n"},
			[]string{`proxyStatsMatcher.inclusionRegexps is ".*" (annotation proxy.istio.io/config, line 3): must be a list of regular expressions`}},
		{"a bad regular expression", places{annotation: "proxyStatsMatcher: {inclusionRegexps: ['*x']}"},
			[]string{`proxyStatsMatcher.inclusionRegexps is ["*x"] (annotation proxy.istio.io/config): must be a list of regular expressions of RE2's syntax`}},
		{"a list for proxyMetadata", places{annotation: "proxyMetadata: [{name: A, value: b}]"},
			[]string{`proxyMetadata is [{"name":"A","value":"b"}] (annotation proxy.istio.io/config, line 1): must be a map of variables to strings`}},
		{"a map within proxyMetadata", places{annotation: "proxyMetadata: {A: {b: c}}"}, []string{`proxyMetadata.A is {"b":"c"} (annotation proxy.istio.io/config): must be a string`}},
		{"not a map", places{proxy: "- a"}, []string{"PROXY_CONFIG", "found a list: must be a map of settings"}},
		{"not YAML", places{annotation: "a: b\nc: [\n"}, []string{"the whole text is not readable (annotation proxy.istio.io/config): must be a ProxyConfig as YAML or JSON: line "}},
		{"defaultConfig is text", places{mesh: "defaultConfig: 5s"}, []string{`defaultConfig is "5s" (mesh file mesh.yaml, line 1): must be a map`}},

		{"not ParseBool's", places{env: []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=yes"}},
			[]string{`EXIT_ON_ZERO_ACTIVE_CONNECTIONS is "yes" (environment EXIT_ON_ZERO_ACTIVE_CONNECTIONS): must be true or false (or 1, t`}},
		{"no unit, in proxyMetadata", places{mesh: "defaultConfig:\n  proxyMetadata:\n    MINIMUM_DRAIN_DURATION: '5'\n"},
			[]string{`defaultConfig.proxyMetadata.MINIMUM_DRAIN_DURATION is "5" (mesh file mesh.yaml, line 3): must be a duration`}},
		{"a unit", places{env: []string{"TERMINATION_GRACE_PERIOD_SECONDS=30s"}}, []string{`TERMINATION_GRACE_PERIOD_SECONDS is "30s"`, "must be whole seconds without a unit"}},
		{"no grace", places{env: []string{"TERMINATION_GRACE_PERIOD_SECONDS=0"}}, []string{`TERMINATION_GRACE_PERIOD_SECONDS is "0"`}},
		{"far too much grace", places{env: []string{"TERMINATION_GRACE_PERIOD_SECONDS=9999999999999"}}, []string{`TERMINATION_GRACE_PERIOD_SECONDS is "9999999999999"`}},
		{"a negative time", places{env: []string{"LASTCALL_QUIET_TIME=-1s"}}, []string{`LASTCALL_QUIET_TIME is "-1s"`, "must be a duration of 0s or more"}},
		{"a code that no close frame of ours has", places{env: []string{"LASTCALL_WEBSOCKET_CLOSE=1000"}}, []string{"must be 1001 (going away) or 1012 (service restart)"}},
		{"neither wait nor close", places{env: []string{"LASTCALL_EVENT_STREAMS=cut"}}, []string{`LASTCALL_EVENT_STREAMS is "cut"`, `must be "wait" `}},
		{"no media type", places{env: []string{"LASTCALL_ENDLESS_TYPES=ndjson"}}, []string{"must be media types"}},
		{"another mesh", places{env: []string{"LASTCALL_COMPAT=linkerd"}}, []string{`LASTCALL_COMPAT is "linkerd" (environment LASTCALL_COMPAT): must be "istio", or ""`}},
		{"a time by flag", places{flags: map[string]Flag{"terminationDrainDuration": {"--termination-drain-duration", "soon"}}}, []string{`--termination-drain-duration "soon": must be a duration`}},
		{"another mesh by flag", places{compat: "linkerd"}, []string{`--compat "linkerd": must be "istio"`}},

		{"all of them at once", places{mesh: "defaultConfig: {statusPort: x}", proxy: "drainDuration: 1", annotation: "concurrency: -1", env: []string{"MINIMUM_DRAIN_DURATION=1", "LASTCALL_IDLE_GRACE=1"}},
			[]string{"statusPort is", "drainDuration is 1 ", "concurrency is", "MINIMUM_DRAIN_DURATION is", "LASTCALL_IDLE_GRACE is"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Resolve(c.places.input())
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\nwant in it\n%s", err, want)
				}
			}
			if invalid := s.Drain().Validate(); invalid != nil {
				t.Errorf("settings are not usable together with the error: %v", invalid)
			}
			var fe *FieldError
			if !errors.As(err, &fe) || fe.Field == "" || fe.Accepts == "" {
				t.Errorf("no FieldError with field and what is accepted in %#v", err)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		name    string
		places  places
		want    []string // one of each, in order
		setting string   // honoured all the same
		value   string
	}{
		{"proxyStatsMatcher in proxyMetadata", places{annotation: "proxyMetadata:\n  MINIMUM_DRAIN_DURATION: '5s'\n  proxyStatsMatcher:\n    inclusionRegexps:\n    - \".*x\"\n"},
			[]string{"proxyMetadata.proxyStatsMatcher (annotation proxy.istio.io/config, line 3): belongs next to proxyMetadata, not inside it; lastcall uses it, Istio ignores it"},
			"proxyStatsMatcher.inclusionRegexps", `[".*x"]`},
		{"terminationDrainDuration in proxyMetadata", places{annotation: "proxyMetadata: {terminationDrainDuration: 30s, EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'false'}"},
			[]string{"proxyMetadata.terminationDrainDuration (annotation proxy.istio.io/config): belongs next to proxyMetadata"}, "terminationDrainDuration", "30s"},
		{"a boolean field in proxyMetadata, as a string", places{annotation: "proxyMetadata: {holdApplicationUntilProxyStarts: 'true'}"},
			[]string{"belongs next to proxyMetadata"}, "holdApplicationUntilProxyStarts", "true"},
		{"proxyStatsMatcher in proxyMetadata, as a string", places{annotation: "proxyMetadata:\n  proxyStatsMatcher: |\n    inclusionRegexps: ['.*x']\n"},
			[]string{"proxyMetadata.proxyStatsMatcher (annotation proxy.istio.io/config, line 2): belongs next to proxyMetadata"}, "proxyStatsMatcher.inclusionRegexps", `[".*x"]`},
		{"the correctly placed value wins", places{annotation: "drainDuration: 10s\nproxyMetadata: {drainDuration: 20s}"},
			[]string{"belongs next to", "proxyMetadata.drainDuration (annotation proxy.istio.io/config): ignored: drainDuration has it already"}, "drainDuration", "10s"},
		{"misplaced in a higher layer wins over a lower one", places{mesh: "defaultConfig: {drainDuration: 10s}", annotation: "proxyMetadata: {drainDuration: 20s}"},
			[]string{"belongs next to"}, "drainDuration", "20s"},
		{"a variable next to proxyMetadata", places{annotation: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS: true\n"},
			[]string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS (annotation proxy.istio.io/config, line 1): belongs under proxyMetadata; lastcall uses it, Istio ignores it"},
			"EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true"},
		{"another", places{annotation: "MINIMUM_DRAIN_DURATION: 9s\nproxyMetadata: {A: b}"}, []string{"belongs under proxyMetadata"}, "MINIMUM_DRAIN_DURATION", "9s"},
		{"in proxyMetadata wins", places{annotation: "MINIMUM_DRAIN_DURATION: 9s\nproxyMetadata: {MINIMUM_DRAIN_DURATION: 8s}"},
			[]string{"belongs under", "ignored: proxyMetadata.MINIMUM_DRAIN_DURATION has it already"}, "MINIMUM_DRAIN_DURATION", "8s"},
		{"a boolean in proxyMetadata", places{annotation: "proxyMetadata:\n  EXIT_ON_ZERO_ACTIVE_CONNECTIONS: false\n"},
			[]string{`proxyMetadata.EXIT_ON_ZERO_ACTIVE_CONNECTIONS (annotation proxy.istio.io/config, line 2): a boolean where Istio accepts strings only: read as "false"; write it in quotes`},
			"EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "false"},
		{"a number in proxyMetadata", places{annotation: "proxyMetadata: {TERMINATION_GRACE_PERIOD_SECONDS: 45}"},
			[]string{"a number where Istio accepts strings only"}, "TERMINATION_GRACE_PERIOD_SECONDS", "45"},
		{"null in proxyMetadata", places{annotation: "proxyMetadata: {MINIMUM_DRAIN_DURATION: null}"}, []string{"null sets nothing"}, "MINIMUM_DRAIN_DURATION", "5s"},

		{"an IstioOperator", places{mesh: "kind: IstioOperator\nspec:\n  meshConfig:\n    defaultConfig:\n      drainDuration: 20s\n"},
			[]string{"spec.meshConfig (mesh file mesh.yaml, line 3): wrapped as in an IstioOperator: lastcall unwraps it, Istio's proxy would not"}, "drainDuration", "20s"},
		{"Helm values", places{mesh: "meshConfig: {defaultConfig: {drainDuration: 20s}}"}, []string{"meshConfig (mesh file mesh.yaml, line 1): wrapped as in Helm values"}, "drainDuration", "20s"},
		{"the ConfigMap", places{mesh: "kind: ConfigMap\ndata:\n  mesh: |\n    defaultConfig:\n      drainDuration: 20s\n"}, []string{"data.mesh (mesh file mesh.yaml, line 3): wrapped as in a ConfigMap"}, "drainDuration", "20s"},
		{"a ProxyConfig as mesh file", places{mesh: "drainDuration: 20s\n"}, []string{"drainDuration (mesh file mesh.yaml, line 1): belongs under defaultConfig"}, "drainDuration", "20s"},
		{"defaultConfig in PROXY_CONFIG", places{proxy: `{"defaultConfig": {"drainDuration": "20s"}}`}, []string{"defaultConfig (PROXY_CONFIG): its fields belong at the top here"}, "drainDuration", "20s"},
		{"the whole IstioOperator in the annotation", places{annotation: "spec: {meshConfig: {defaultConfig: {drainDuration: 20s}}}"},
			[]string{"wrapped as in an IstioOperator", "spec.meshConfig.defaultConfig (annotation proxy.istio.io/config): its fields belong at the top here"}, "drainDuration", "20s"},

		{"a typing error", places{annotation: "terminationDrainDurations: 30s"},
			[]string{"terminationDrainDurations (annotation proxy.istio.io/config, line 1): unknown field, has no effect: did you mean terminationDrainDuration?"}, "terminationDrainDuration", "5s"},
		{"case", places{annotation: "terminationdrainduration: 30s"}, []string{"did you mean terminationDrainDuration?"}, "", ""},
		{"case of a variable", places{annotation: "exit_on_zero_active_connections: 'true'"}, []string{"did you mean EXIT_ON_ZERO_ACTIVE_CONNECTIONS?"}, "", ""},
		{"in proxyStatsMatcher", places{annotation: "proxyStatsMatcher: {inclusionRegexp: [a]}"}, []string{"proxyStatsMatcher.inclusionRegexp (annotation proxy.istio.io/config): unknown field, has no effect: did you mean inclusionRegexps?"}, "", ""},
		{"of MeshConfig", places{mesh: "defaultConfigs: {}"}, []string{"defaultConfigs (mesh file mesh.yaml, line 1): unknown field, has no effect: did you mean defaultConfig?"}, "", ""},
		{"nothing like it", places{annotation: "gracefulness: much"}, []string{"gracefulness (annotation proxy.istio.io/config, line 1): unknown field, has no effect"}, "", ""},
		{"of the pod", places{annotation: "terminationGracePeriodSeconds: 60"}, []string{"belongs in the pod's spec, has no effect here; set TERMINATION_GRACE_PERIOD_SECONDS for lastcall"}, "", ""},
		{"a variable in proxyMetadata", places{annotation: "proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTION: 'false'}"}, []string{"did you mean EXIT_ON_ZERO_ACTIVE_CONNECTIONS?"}, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true"},
		{"a variable in the environment", places{env: []string{"MINIMUM_DRAIN_DURATIONS=9s"}}, []string{"MINIMUM_DRAIN_DURATIONS (environment MINIMUM_DRAIN_DURATIONS): unknown setting, has no effect on lastcall: did you mean MINIMUM_DRAIN_DURATION?"}, "", ""},
		{"an annotation", places{others: map[string]string{"proxy.istio.io/Config": "a: b"}}, []string{"no annotation of this name, has no effect: did you mean proxy.istio.io/config?"}, "", ""},
		{"a key twice", places{annotation: "drainDuration: 10s\ndrainDuration: 20s\n"}, []string{"a key appears twice, the last one counts: line 2"}, "drainDuration", "20s"},
		{"a second document", places{mesh: "---\ndefaultConfig: {drainDuration: 10s}\n---\ndefaultConfig: {drainDuration: 20s}\n"},
			[]string{"the whole text (mesh file mesh.yaml, line 3): a second document begins here; ignored"}, "drainDuration", "10s"},
		{"a name that would do something to the terminal", places{annotation: "\"drain\\e[2J\": 10s"}, []string{`"drain\x1b[2J" (annotation proxy.istio.io/config): unknown field`}, "", ""},

		{"no longer in Istio: variable", places{env: []string{"TERMINATION_DRAIN_DURATION_SECONDS=20"}}, []string{"TERMINATION_DRAIN_DURATION_SECONDS (environment TERMINATION_DRAIN_DURATION_SECONDS): removed from Istio, has no effect: write terminationDrainDuration in the ProxyConfig instead"}, "terminationDrainDuration", "5s"},
		{"no longer in Istio: field", places{mesh: "defaultConfig: {parentShutdownDuration: 70s}"}, nil, "", ""},
		{"environment against proxyMetadata", places{annotation: "proxyMetadata: {MINIMUM_DRAIN_DURATION: 9s}", env: []string{"MINIMUM_DRAIN_DURATION=8s"}},
			[]string{`proxyMetadata.MINIMUM_DRAIN_DURATION (annotation proxy.istio.io/config): "9s" is not used: the container's own environment sets "8s", which takes precedence`}, "MINIMUM_DRAIN_DURATION", "8s"},
		{"environment as the injector sets it", places{annotation: "proxyMetadata: {MINIMUM_DRAIN_DURATION: 9s}", env: []string{"MINIMUM_DRAIN_DURATION=9s"}}, nil, "MINIMUM_DRAIN_DURATION", "9s"},

		{"terminationDrainDuration while leaving on zero", places{annotation: "terminationDrainDuration: 30s"},
			[]string{"terminationDrainDuration (annotation proxy.istio.io/config, line 1): not used: lastcall leaves as soon as nothing is in flight, and always before the grace period (30s) ends; set EXIT_ON_ZERO_ACTIVE_CONNECTIONS=false in proxyMetadata to wait for this time instead"},
			"EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true"},
		{"terminationDrainDuration and exit on zero both set", places{annotation: "terminationDrainDuration: 30s", env: []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true"}}, []string{"not used with EXIT_ON_ZERO_ACTIVE_CONNECTIONS=true, as in Istio"}, "", ""},
		{"terminationDrainDuration wanted", places{annotation: "terminationDrainDuration: 30s", env: []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=false"}}, nil, "terminationDrainDuration", "30s"},
		{"terminationDrainDuration as Istio does", places{annotation: "terminationDrainDuration: 30s", compat: "istio"}, nil, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "false"},
		{"minimum drain with a fixed wait", places{env: []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=false", "MINIMUM_DRAIN_DURATION=9s"}}, []string{"not used with EXIT_ON_ZERO_ACTIVE_CONNECTIONS=false: the wait is terminationDrainDuration (5s)"}, "", ""},
		{"lastcall's times with Istio's behaviour", places{compat: "istio", env: []string{"LASTCALL_QUIET_TIME=1s"}}, []string{"LASTCALL_QUIET_TIME (environment LASTCALL_QUIET_TIME): not used in mode fixed, which does as Istio does"}, "", ""},
		{"one port for two", places{annotation: "statusPort: 15000"}, []string{"statusPort (annotation proxy.istio.io/config, line 1): 15000 is also proxyAdminPort"}, "", ""},
		{"a spread that does not fit", places{env: []string{"LASTCALL_LAST_CALL_SPREAD=5s"}}, []string{"about 667ms are taken; raise LASTCALL_LAST_CALL_MARGIN (2s) to three times of it"}, "", ""},
		{"variables that only look alike", places{env: []string{"LASTCALL_PORT=tcp://10.0.0.1:80", "LASTCALL_SERVICE_HOST=10.0.0.1", "PATH=/bin"}}, nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Resolve(c.places.input())
			must.Do(t, err)
			got := make([]string, 0, len(s.Warnings))
			for _, w := range s.Warnings {
				got = append(got, w.String())
			}
			if !slices.EqualFunc(got, c.want, strings.Contains) {
				t.Errorf("warnings\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
			}
			if c.setting != "" {
				if value, _ := printed(t, s, c.setting); value != c.value {
					t.Errorf("%s is %s, want %s", c.setting, value, c.value)
				}
			}
		})
	}
}
