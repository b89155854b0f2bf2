package termination_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

func read(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

// TestMeshes: which containers stop, in which order, by which rules.
func TestMeshes(t *testing.T) {
	for _, tt := range []struct {
		name, pod string
		istio     inject.Sidecar
		want      string
	}{
		{"bare", `spec: {containers: [{name: web}]}`, "", "web unknown"},
		{"a sleep", `spec: {containers: [{name: web, lifecycle: {preStop: {exec: {command: [sh, -c, sleep 5]}}}}]}`, "", "web sleep 5s unknown"},
		{"Istio, native", `{metadata: {labels: {sidecar.istio.io/inject: "true"}}, spec: {containers: [{name: web}]}}`, "",
			"web unknown, istio-proxy native notify exits"},
		{"Istio, classic", `{metadata: {labels: {sidecar.istio.io/inject: "true"}}, spec: {containers: [{name: web}]}}`, inject.Classic,
			"web unknown, istio-proxy fixed drain 5s"},
		{"Istio by its annotation", `{metadata: {annotations: {proxy.istio.io/config: "terminationDrainDuration: 30s"}}, spec: {containers: [{name: web}]}}`, inject.Classic,
			"web unknown, istio-proxy fixed drain 30s"},
		{"exit on zero", `{metadata: {annotations: {sidecar.istio.io/nativeSidecar: "false", proxy.istio.io/config: "proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'true', MINIMUM_DRAIN_DURATION: 8s}"}}, spec: {containers: [{name: web}]}}`, "",
			"web unknown, istio-proxy polls for zero 8s"},
		{"ambient", `{metadata: {labels: {istio.io/dataplane-mode: ambient}}, spec: {containers: [{name: web}]}}`, "", "web unknown"},
		{"linkerd, native", `{metadata: {annotations: {linkerd.io/inject: enabled}}, spec: {containers: [{name: web}]}}`, "",
			"web unknown, linkerd-proxy native refuses new ones 2m0s"},
		{"linkerd, classic", `{metadata: {annotations: {linkerd.io/inject: enabled, config.beta.linkerd.io/proxy-enable-native-sidecar: "false", config.alpha.linkerd.io/proxy-wait-before-exit-seconds: "8", config.linkerd.io/shutdown-grace-period: 20s}}, spec: {containers: [{name: web}]}}`, "",
			"web unknown, linkerd-proxy sleep 8s refuses new ones 20s"},
		{"lastcall, native", `{metadata: {labels: {lastcall.dev/inject: "true"}}, spec: {containers: [{name: web, ports: [{containerPort: 80}]}]}}`, "",
			"web drain unknown, lastcall native drain waits"},
		{"lastcall, classic", `{metadata: {labels: {lastcall.dev/inject: "true"}, annotations: {lastcall.dev/sidecar: classic}}, spec: {containers: [{name: web, ports: [{containerPort: 80}]}]}}`, "",
			"lastcall waits, web drain unknown"},
		{"lastcall next to Istio", `{metadata: {labels: {lastcall.dev/inject: "true", sidecar.istio.io/inject: "true"}}, spec: {containers: [{name: web, ports: [{containerPort: 80}]}]}}`, "",
			"web drain unknown, istio-proxy native notify exits"},
		{"lastcall next to a classic Istio", `{metadata: {labels: {lastcall.dev/inject: "true", sidecar.istio.io/inject: "true"}}, spec: {containers: [{name: web, ports: [{containerPort: 80}]}]}}`, inject.Classic,
			"web drain unknown, istio-proxy app's end exits"},
		{"lastcall in linkerd", `{metadata: {labels: {lastcall.dev/inject: "true"}, annotations: {linkerd.io/inject: enabled}}, spec: {containers: [{name: web, ports: [{containerPort: 80}]}]}}`, "",
			"web drain unknown, linkerd-proxy native refuses new ones 2m0s"},
		{"lastcall in place of a sleep", `{metadata: {labels: {lastcall.dev/inject: "true"}}, spec: {containers: [{name: web, ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, sleep 9]}}}}]}}`, "",
			"web drain unknown, lastcall native drain waits"},
		{"lastcall after another hook", `{metadata: {labels: {lastcall.dev/inject: "true"}}, spec: {containers: [{name: web, ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, touch /tmp/x; sleep 9]}}}}]}}`, "",
			"web drain 9s unknown, lastcall native drain waits"},
		{"lastcall next to a hook that is kept", `{metadata: {labels: {lastcall.dev/inject: "true"}, annotations: {lastcall.dev/pre-stop: keep}}, spec: {containers: [{name: web, ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 9}}}}]}}`, "",
			"web sleep 9s unknown, lastcall native drain waits"},
		{"lastcall with Envoy", `{metadata: {labels: {lastcall.dev/inject: "true"}, annotations: {lastcall.dev/proxy: envoy}}, spec: {containers: [{name: web, ports: [{containerPort: 80}]}]}}`, "",
			"web drain unknown, lastcall native drain waits"},
		{"own native sidecars", `spec: {initContainers: [{name: a, restartPolicy: Always}, {name: init}, {name: b, restartPolicy: Always}], containers: [{name: web}]}`, "",
			"web unknown, b native unknown, a native unknown"},
		{"stop signals", `spec: {os: {name: linux}, containers: [{name: web, lifecycle: {stopSignal: SIGSTOP}}]}`, "", "web ignores"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := termination.Of(read(t, tt.pod), termination.Options{Istio: tt.istio})
			var all []string
			for _, c := range plan.Containers {
				text := c.Name
				if c.Native {
					text += " native"
				}
				if c.Hook.Kind != podend.NoHook {
					text += " " + string(c.Hook.Kind)
				}
				if c.Hook.Duration > 0 {
					text += " " + c.Hook.Duration.String()
				}
				text += " " + string(c.Reaction)
				if c.Drain > 0 {
					text += " " + c.Drain.String()
				}
				all = append(all, text)
			}
			if got := strings.Join(all, ", "); got != tt.want {
				t.Errorf("got  %s\nwant %s\nnotes %q", got, tt.want, plan.Notes)
			}
		})
	}
}

// TestBlind: a classic sidecar of lastcall sees the end of apps that have its hook, or share their processes.
func TestBlind(t *testing.T) {
	const classic = `metadata: {labels: {lastcall.dev/inject: "true"}, annotations: {lastcall.dev/sidecar: classic`
	const web = `containers: [{name: web, ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 2}}}}]`
	for _, tt := range []struct {
		pod  string
		gone time.Duration
	}{
		{`{` + classic + `}}, spec: {` + web + `}}`, 8 * time.Second},
		{`{` + classic + `, lastcall.dev/pre-stop: none}}, spec: {` + web + `}}`, 30 * time.Second},
		{`{` + classic + `, lastcall.dev/pre-stop: none}}, spec: {shareProcessNamespace: true, ` + web + `}}`, 8 * time.Second},
	} {
		plan := termination.Of(read(t, tt.pod), termination.Options{App: podend.Finishes})
		if got := plan.Course(podend.Traffic{Busy: 8 * time.Second}).Gone; got != tt.gone {
			t.Errorf("%s: gone at %v, want %v; notes %q", tt.pod, got, tt.gone, plan.Notes)
		}
	}
}

// TestTimerInAVariable: a container's arguments have the values of its variables, as the kubelet sets them.
func TestTimerInAVariable(t *testing.T) {
	plan := termination.Of(read(t, `spec: {containers: [{name: web, env: [{name: T, value: "3"}], command: [gunicorn, --graceful-timeout, $(T), app]}]}`),
		termination.Options{})
	if got := plan.Course(podend.Traffic{Busy: 8 * time.Second}).Cut; got != 3*time.Second {
		t.Errorf("cut at %v, want 3s", got)
	}
}

// TestNotes: a shell in front of the app is noted. TLS of the app's own is, unless the app finishes its requests by
// itself.
func TestNotes(t *testing.T) {
	for app, want := range map[string]int{"auto": 1, "exits": 1, "finishes": 0} {
		pod := read(t, `{metadata: {labels: {lastcall.dev/inject: "true"}, annotations: {lastcall.dev/app: `+app+`}}, spec: {containers: [{name: web, ports: [{containerPort: 8443}]}]}}`)
		if notes := termination.Of(pod, termination.Options{}).Notes; len(notes) != want || want > 0 && !strings.HasPrefix(notes[0], "port 8443 passes TLS through to the app: ") {
			t.Errorf("%s: notes %q", app, notes)
		}
	}
	front := read(t, `spec: {containers: [{name: web, command: [tini, --, sh, -c, node a.js]}]}`)
	if notes := termination.Of(front, termination.Options{}).Notes; !slices.Contains(notes, "sh -c ends at SIGTERM, and web with it") {
		t.Errorf("a shell below an init: notes %q", notes)
	}
}

// TestFates: what becomes of single requests, and why.
func TestFates(t *testing.T) {
	const sleep5 = `spec: {containers: [{name: web, lifecycle: {preStop: {sleep: {seconds: 5}}}}]}`
	const lastcall = `{metadata: {labels: {lastcall.dev/inject: "true"}}, spec: {containers: [{name: web, ports: [{containerPort: 80}]}]}}`
	const sleeping = `{metadata: {labels: {lastcall.dev/inject: "true"}}, spec: {containers: [{name: web, ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 9}}}}]}}`
	const leaving = `{metadata: {labels: {lastcall.dev/inject: "true"}}, spec: {containers: [{name: web, ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, "/leave; sleep 9"]}}}}]}}`
	const istio = `{metadata: {labels: {sidecar.istio.io/inject: "true"}}, spec: {containers: [{name: web}]}}`
	for _, tt := range []struct {
		pod            string
		app            podend.Reaction
		arrives, takes time.Duration // in seconds
		want           string
	}{
		{sleep5, "", -1, 3, "200"},
		{sleep5, "", 4, 3, "unknown at 5s: 200, or cut at 5 s: web may exit"},
		{sleep5, "", 6, 1, "unknown at 6s: 200, or refused at 6 s: the pod no longer accepts"},
		{sleep5, "", -1, 60, "from 5s cut at 30s: SIGKILL of web, if not before: web may exit"},
		{sleep5, podend.Exits, 4, 3, "cut at 5s: web exits"},
		{sleep5, podend.Exits, 6, 1, "refused at 6s: the pod no longer accepts"},
		{sleep5, podend.Finishes, 4, 30, "cut at 30s: SIGKILL of web"},
		{sleep5, podend.Finishes, 4, 20, "200"},
		{lastcall, "", 0, 20, "200"},
		{lastcall, "", 3, 30, "cut at 28s: lastcall's last call"},
		{lastcall, "", 6, 1, "refused at 6s: the pod no longer accepts"},
		{sleeping, "", 8, 15, "200"},
		{sleeping, "", 10, 1, "refused at 10s: the pod no longer accepts"},
		{leaving, "", -1, 20, "200"},
		{leaving, "", 3, 30, "cut at 28s: lastcall's last call"},
		{istio, podend.Exits, -1, 2, "cut at 0s: web exits"},
		{istio, podend.Finishes, 1, 2, "503 at 1s: the app has closed its port"},
	} {
		f := termination.Of(read(t, tt.pod), termination.Options{App: tt.app, Istio: inject.Classic}).Fate(tt.arrives*time.Second, tt.takes*time.Second)
		got := f.Result
		if !f.IsServed {
			got += " at " + f.At.String() + ": " + f.Why
			if f.From != f.At {
				got = "from " + f.From.String() + " " + got
			}
		}
		if got != tt.want {
			t.Errorf("%s, app %q, arrives at %d s, takes %d s: %s, want %s", tt.pod, tt.app, tt.arrives, tt.takes, got, tt.want)
		}
	}
}

// TestSources: each value has its source.
func TestSources(t *testing.T) {
	plan := termination.Of(read(t, `{metadata: {annotations: {proxy.istio.io/config: "terminationDrainDuration: 30s"}}, spec: {containers: [{name: web}]}}`), termination.Options{Istio: inject.Classic})
	var all []string
	for _, s := range plan.Containers[1].Settings {
		all = append(all, s.Name+" "+s.Value+" ("+s.Source+")")
	}
	const want = "EXIT_ON_ZERO_ACTIVE_CONNECTIONS false (default), MINIMUM_DRAIN_DURATION 5s (default), terminationDrainDuration 30s (annotation proxy.istio.io/config)"
	if got := strings.Join(all, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestInjectedByIstio: pods that Istio's own injector has made.
func TestInjectedByIstio(t *testing.T) {
	files, err := filepath.Glob("../inject/testdata/istio/*/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		if d := filepath.Base(filepath.Dir(file)); d == "offline" || d == "pods" {
			continue // the injector's input
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range manifest.Parse(file, text).Objects {
			all, err := o.Workloads()
			if err != nil {
				t.Fatal(err)
			}
			if len(all) == 0 {
				continue
			}
			w := all[0]
			plan := termination.Of(w.Pod, termination.Options{})
			if plan.Mesh != pod.MeshIstio {
				t.Errorf("%s: mesh %q", file, plan.Mesh)
			}
			for _, c := range plan.Containers {
				if c.Assumed {
					t.Errorf("%s: %s is assumed, but the pod has a sidecar", file, c.Name)
				}
			}
		}
	}
}

// TestVariablesThatGrow: a container's variables are resolved up to a limit, and a note reports that.
func TestVariablesThatGrow(t *testing.T) {
	text, err := os.ReadFile("../manifest/testdata/doubling.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pod := read(t, string(text))
	pod.Spec.Containers[0].Command = []string{"lastcall", "agent"}
	pod.Spec.Containers[0].Image = "lastcall"
	if notes := termination.Of(pod, termination.Options{}).Notes; len(notes) != 1 || notes[0] != manifest.CutText {
		t.Errorf("notes: %q", notes)
	}
}

// A hook that lastcall's runs after the drain stops the app then, and not before.
func TestOwnHookAfterTheDrain(t *testing.T) {
	for flag, want := range map[string]string{
		"--after":  "lastcall wait: until no request is in flight, then nginx -s quit",
		"--before": "lastcall wait: first nginx -s quit, then until no request is in flight",
	} {
		pod := read(t, `{spec: {terminationGracePeriodSeconds: 30, containers: [{name: web, ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command:
			[/lastcall/lastcall, wait, --ports, "80", `+flag+`, 25s, --, nginx, -s, quit]}}}}]}}`)
		if got := termination.Of(pod, termination.Options{}).Containers[0].Hook.String(); got != want {
			t.Errorf("%s: %q, want %q", flag, got, want)
		}
	}
}

// TestAgentByHand: lastcall's agent knows the pod's grace period only from its variable, and takes its default otherwise.
func TestAgentByHand(t *testing.T) {
	for env, want := range map[string]time.Duration{
		"": 28 * time.Second,
		"env: [{name: TERMINATION_GRACE_PERIOD_SECONDS, value: '60'}], ":                             58 * time.Second,
		"env: [{name: TERMINATION_GRACE_PERIOD_SECONDS, valueFrom: {fieldRef: {fieldPath: a.b}}}], ": 58 * time.Second,
		"envFrom: [{configMapRef: {name: timers}}], ":                                                58 * time.Second,
	} {
		p := read(t, `{spec: {terminationGracePeriodSeconds: 60, initContainers: [{name: lastcall, image: lastcall, restartPolicy: Always, `+env+
			`args: [agent, --sidecar, native]}], containers: [{name: web, ports: [{containerPort: 80}]}]}}`)
		if got := termination.Of(p, termination.Options{}).LastCall; got != want {
			t.Errorf("%q: last call at %v, want %v", env, got, want)
		}
	}
}
