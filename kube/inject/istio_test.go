package inject

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

const (
	native, classic  = true, false
	istioExcludePort = "traffic.sidecar.istio.io/excludeInboundPorts"
)

// withIstio adds what Istio's injector adds, as far as lastcall looks at it.
func withIstio(p *corev1.Pod, isNative bool) *corev1.Pod {
	p = p.DeepCopy()
	proxy := corev1.Container{Name: pod.IstioProxy, Image: "istio/proxyv2:1.31.1", Env: []corev1.EnvVar{{Name: "PROXY_CONFIG", Value: `{"proxyStatsMatcher":{"inclusionPrefixes":["mesh"],"inclusionSuffixes":["upstream_rq_total"]}}`}}}
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "istio-init", Image: "istio/proxyv2:1.31.1", Args: []string{"istio-iptables", "-b", "*", "-d", "15090,15021,15020"}})
	if isNative {
		proxy.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		proxy.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"pilot-agent", "request", "--debug-port=15020", "POST", "drain"}}}}
		p.Spec.InitContainers = append(p.Spec.InitContainers, proxy)
	} else {
		p.Spec.Containers = append(p.Spec.Containers, proxy)
	}
	return p
}

// command is a container's preStop, without the program's path.
func command(t *testing.T, p *corev1.Pod, name string) string {
	t.Helper()
	c := pod.Find(&p.Spec, name)
	if c == nil || c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec == nil {
		return ""
	}
	return strings.TrimPrefix(strings.Join(c.Lifecycle.PreStop.Exec.Command, " "), binary+" ")
}

const (
	appWait      = "wait --envoy 127.0.0.1:15000 --ports 8080/http --report /dev/termination-log"
	sidecarWait  = "wait --envoy 127.0.0.1:15000 --pilot-agent 15020 --sidecar"
	pilotRequest = "pilot-agent request --debug-port=15020 POST drain"
)

// TestIstio is the form next to Istio's sidecar, whichever webhook is called first: the app's hook watches Envoy, and the
// hook of istio-proxy begins the drain.
func TestIstio(t *testing.T) {
	o := testOptions()
	o.Namespace.Labels = map[string]string{"istio-injection": "enabled"}
	inject := func(p *corev1.Pod) *corev1.Pod {
		t.Helper()
		out, r := Pod(p, o)
		if r.Outcome != Injected || r.Proxy != Istio {
			t.Fatalf("%+v", r)
		}
		checkAgain(t, t.Name(), out, o)
		return out
	}
	for _, isNative := range []bool{native, classic} {
		second := inject(withIstio(aPod(nil), isNative))
		first := inject(aPod(nil))
		if got := command(t, first, "web"); got != appWait || first.Annotations[annotationProxyConfig] != "" {
			t.Errorf("before Istio's webhook the hook is %q, the annotation %q", got, first.Annotations[annotationProxyConfig])
		}
		again := inject(withIstio(first, isNative))
		for order, p := range map[string]*corev1.Pod{"Istio first": second, "ours first": again} {
			want := pilotRequest
			if !isNative {
				want = sidecarWait[:len(sidecarWait)-len(" --sidecar")] + " --sidecar --ports 8080/http"
			}
			if got := command(t, p, "web"); got != appWait {
				t.Errorf("%s, native %v: the app's hook is %q, want %q", order, isNative, got, appWait)
			}
			if got := command(t, p, pod.IstioProxy); got != want {
				t.Errorf("%s, native %v: istio-proxy's hook is %q, want %q", order, isNative, got, want)
			}
			proxy := pod.Find(&p.Spec, pod.IstioProxy)
			if _, isSet := pod.Variable(proxy, meshconfig.VariableExitOnZero); isSet {
				t.Errorf("%s, native %v: EXIT_ON_ZERO_ACTIVE_CONNECTIONS is set, which makes idle clients hold the pod", order, isNative)
			}
			if isMounted := len(proxy.VolumeMounts) == 1; isMounted == isNative {
				t.Errorf("%s, native %v: istio-proxy has the program: %v", order, isNative, isMounted)
			}
			const stats = "proxyStatsMatcher:\n  inclusionPrefixes:\n  - mesh\n  inclusionSuffixes:\n  - upstream_rq_total\n  - downstream_rq_active\n  - downstream_cx_active\n  - downstream_rq_total\n  - downstream_cx_total\n"
			if got := p.Annotations[annotationProxyConfig]; got != stats {
				t.Errorf("%s, native %v: the annotation is\n%s\nwant\n%s", order, isNative, got, stats)
			}
		}
	}
}

func TestIstioHooks(t *testing.T) {
	sleep := &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 9}}}
	leave := &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/leave", "--now"}}}}
	const longer = appWait + " --minimum-drain 9s"
	for _, c := range []struct {
		name       string
		change     func(*corev1.Pod) // before Istio's injector
		native     bool
		after      func(proxy *corev1.Container)
		app, proxy string
		note       string
	}{
		{name: "other ports", native: classic, change: func(p *corev1.Pod) { p.Annotations[annotationProxyConfig] = "statusPort: 16020\nproxyAdminPort: 16000" },
			app: "wait --envoy 127.0.0.1:16000 --ports 8080/http --report /dev/termination-log", proxy: "wait --envoy 127.0.0.1:16000 --pilot-agent 16020 --sidecar --ports 8080/http"},
		{name: "the status port by its annotation", native: classic, change: func(p *corev1.Pod) { p.Annotations[istioStatusPort] = "17020" },
			app: appWait, proxy: "wait --envoy 127.0.0.1:15000 --pilot-agent 17020 --sidecar --ports 8080/http"},
		{name: "a status port that Istio's own hook cannot use", native: native, change: func(p *corev1.Pod) { p.Annotations[istioStatusPort] = "17020" },
			app: appWait, proxy: "wait --envoy 127.0.0.1:15000 --pilot-agent 17020 --sidecar --ports 8080/http", note: "which pilot-agent request refuses"},
		{name: "the mesh's ports and timers", native: native, after: func(proxy *corev1.Container) {
			proxy.Env[0].Value = `{"proxyAdminPort":16000,"proxyMetadata":{"MINIMUM_DRAIN_DURATION":"9s"}}`
		}, app: "wait --envoy 127.0.0.1:16000 --ports 8080/http --report /dev/termination-log --minimum-drain 9s", proxy: pilotRequest},
		{name: "an app without a port", native: native, change: func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil },
			app: "wait --envoy 127.0.0.1:15000 --report /dev/termination-log", proxy: pilotRequest},
		{name: "ports by annotation", native: native, change: func(p *corev1.Pod) { p.Annotations[annotationPorts] = "9090/grpc" },
			app: "wait --envoy 127.0.0.1:15000 --ports 9090/grpc --report /dev/termination-log", proxy: pilotRequest},
		{name: "a Job without a port", native: native, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports, p.OwnerReferences = nil, []metav1.OwnerReference{{Kind: "Job", Name: "work"}}
		}, app: "wait --envoy 127.0.0.1:15000 --report /dev/termination-log --minimum-drain 0s --quiet-time 0s", proxy: pilotRequest},
		{name: "its log is its message", native: classic, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		}, app: "wait --envoy 127.0.0.1:15000 --ports 8080/http", proxy: sidecarWait + " --ports 8080/http --report /dev/termination-log", note: "FallbackToLogsOnError"},
		{name: "another message file", native: native, change: func(p *corev1.Pod) { p.Spec.Containers[0].TerminationMessagePath = "/tmp/end" },
			app: "wait --envoy 127.0.0.1:15000 --ports 8080/http --report /tmp/end", proxy: pilotRequest},
		{name: "the app's own sleep", native: classic, change: func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = sleep.DeepCopy() },
			app: longer, proxy: sidecarWait + " --ports 8080/http --minimum-drain 9s", note: "replaces its preStop sleep of 9s"},
		{name: "the app's own command", native: native, change: func(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = leave.DeepCopy() },
			app: appWait + " --after 25s -- /leave --now", proxy: pilotRequest, note: "and then runs its own preStop in the time that is left"},
		{name: "the app's own hook kept", native: classic, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle, p.Annotations[annotationPreStop] = sleep.DeepCopy(), "keep"
		}, app: "", proxy: sidecarWait + " --ports 8080/http --report /dev/termination-log", note: "container web keeps its own preStop"},
		{name: "the app's own hook replaced", native: classic, change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle, p.Annotations[annotationPreStop] = sleep.DeepCopy(), "replace"
		}, app: appWait, proxy: sidecarWait + " --ports 8080/http"},
		{name: "istio-proxy's own sleep, classic", native: classic, after: func(proxy *corev1.Container) { proxy.Lifecycle = sleep.DeepCopy() },
			app: longer, proxy: sidecarWait + " --ports 8080/http --minimum-drain 9s", note: "replaces its preStop sleep of 9s"},
		{name: "istio-proxy's own hook, classic", native: classic, after: func(proxy *corev1.Container) { proxy.Lifecycle = leave.DeepCopy() },
			app: appWait, proxy: "/leave --now", note: "istio-proxy keeps its own preStop"},
		{name: "istio-proxy's own hook and exit on zero", native: classic, after: func(proxy *corev1.Container) {
			proxy.Lifecycle = leave.DeepCopy()
			setVariable(proxy, meshconfig.VariableExitOnZero, "true")
		}, app: appWait, proxy: "/leave --now", note: "an idle client holds istio-proxy until SIGKILL"},
		{name: "istio-proxy's own hook, replaced", native: classic, change: func(p *corev1.Pod) { p.Annotations[annotationPreStop] = "replace" },
			after: func(proxy *corev1.Container) { proxy.Lifecycle = sleep.DeepCopy() }, app: appWait, proxy: sidecarWait + " --ports 8080/http"},
		{name: "istio-proxy's own hook, native", native: native, after: func(proxy *corev1.Container) { proxy.Lifecycle = leave.DeepCopy() },
			app: appWait, proxy: "/leave --now", note: "keeps a preStop that is not Istio's"},
		{name: "Istio's own is restored", native: native, after: func(proxy *corev1.Container) { proxy.Lifecycle.PreStop = nil },
			app: appWait, proxy: pilotRequest, note: "which was restored"},
		{name: "a hook for a classic sidecar that became native", native: native, after: func(proxy *corev1.Container) {
			proxy.Lifecycle.PreStop.Exec.Command = strings.Fields(binary + " " + sidecarWait)
		}, app: appWait, proxy: pilotRequest},
		{name: "the sidecar holds the app", native: classic, after: func(proxy *corev1.Container) {
			proxy.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"pilot-agent", "wait"}}}}
		}, app: appWait, proxy: sidecarWait + " --ports 8080/http"},
		{name: "TPROXY", native: classic, change: func(p *corev1.Pod) { p.Annotations[istioMode] = "TPROXY" }, app: appWait, proxy: sidecarWait + " --ports 8080/http"},
		{name: "no redirect", native: native, change: func(p *corev1.Pod) { p.Annotations[istioMode] = "NONE" },
			app: "wait --ports 8080/http --report /dev/termination-log", proxy: pilotRequest, note: "Istio does not capture its ports"},
		{name: "an excluded port", native: native, change: func(p *corev1.Pod) {
			p.Annotations[istioExcludePort] = "9090,8080"
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{ContainerPort: 8081})
		}, after: func(proxy *corev1.Container) {}, app: "wait --envoy 127.0.0.1:15000 --ports 8080/http,8081 --report /dev/termination-log", proxy: pilotRequest, note: "does not capture port 8080/http"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := aPod(c.change)
			p = withIstio(p, c.native)
			if exclude := p.Annotations[istioExcludePort]; exclude != "" {
				pod.Find(&p.Spec, "istio-init").Args[4] = exclude
			}
			if c.after != nil {
				c.after(pod.Find(&p.Spec, pod.IstioProxy))
			}
			got, r := Pod(p, testOptions())
			if r.Outcome != Injected || r.Proxy != Istio {
				t.Fatalf("%+v", r)
			}
			if app := command(t, got, "web"); app != c.app {
				t.Errorf("the app's hook is\n%q, want\n%q", app, c.app)
			}
			if proxy := command(t, got, pod.IstioProxy); proxy != c.proxy {
				t.Errorf("istio-proxy's hook is\n%q, want\n%q", proxy, c.proxy)
			}
			if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" && !strings.Contains(notes, "restored") {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			checkAgain(t, t.Name(), got, testOptions())
		})
	}
}

// TestIstioOffline injects before Istio does: the annotation is written at once, and a classic sidecar gets its hook by the
// container that Istio merges into its own.
func TestIstioOffline(t *testing.T) {
	o := testOptions()
	o.Offline = true
	o.Namespace.Labels = map[string]string{"istio-injection": "enabled"}
	p, r := Pod(aPod(nil), o)
	if r.Proxy != Istio || pod.Find(&p.Spec, pod.IstioProxy) != nil || command(t, p, "web") != appWait || !strings.Contains(p.Annotations[annotationProxyConfig], "downstream_rq_active") || !strings.Contains(strings.Join(r.Notes, " "), annotationSidecar) {
		t.Errorf("native: %+v, annotations %q", r, p.Annotations)
	}
	o.Sidecar = Classic
	p, r = Pod(aPod(nil), o)
	proxy := pod.Find(&p.Spec, pod.IstioProxy)
	if proxy == nil || proxy.Image != autoImage || proxy.ImagePullPolicy != corev1.PullIfNotPresent || len(proxy.VolumeMounts) != 1 || command(t, p, pod.IstioProxy) != sidecarWait+" --ports 8080/http" {
		t.Fatalf("classic: %+v, %+v", r, proxy)
	}
	checkAgain(t, t.Name(), p, o)
	o.Offline = false // the webhook, before Istio's: the user's own container may become native
	own, _ := Pod(aPod(func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: pod.IstioProxy, Image: autoImage})
	}), o)
	if c := pod.Find(&own.Spec, pod.IstioProxy); c.Lifecycle != nil || command(t, own, "web") != appWait {
		t.Errorf("a container that Istio has not completed: %+v", c)
	}
}

// TestInjectedAgainAlone injects a manifest a second time without its namespace and with a newer image: no proxy comes next
// to the mesh's, and nothing but the images changes.
func TestInjectedAgainAlone(t *testing.T) {
	for _, c := range []struct {
		name   string
		labels map[string]string
		change func(*corev1.Pod)
		want   Proxy
		images int
	}{
		{"Istio", map[string]string{"istio-injection": "enabled"}, nil, Istio, 1},
		{"proxyless gRPC", map[string]string{"istio-injection": "enabled"}, func(p *corev1.Pod) { p.Annotations[pod.IstioTemplates] = "grpc-agent" }, Sockets, 1},
		{"ambient", map[string]string{"istio.io/dataplane-mode": "ambient"}, nil, Sockets, 1},
		{"pod security", map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}, nil, Sockets, 1},
		{"no mesh", nil, nil, Pipe, 2},
		{"with Envoy", nil, func(p *corev1.Pod) { p.Annotations[annotationProxy] = "envoy" }, Envoy, 2},
	} {
		o := testOptions()
		o.Offline, o.EnvoyImage, o.Namespace.Labels, o.Capture = true, "lastcall-envoy:test", c.labels, CaptureInit
		first, r := Pod(aPod(c.change), o)
		if r.Proxy != c.want {
			t.Errorf("%s: %+v, want %s", c.name, r, c.want)
		}
		o.Image, o.EnvoyImage, o.Namespace.Labels = "lastcall:next", "lastcall-envoy:next", nil
		again, r := Pod(first, o)
		if r.Proxy != c.want {
			t.Errorf("%s, again: %+v, want %s", c.name, r, c.want)
		}
		images := 0
		for _, c := range pod.Containers(&again.Spec) {
			if strings.HasSuffix(c.Image, ":next") {
				images++
				c.Image = strings.TrimSuffix(c.Image, ":next") + ":test"
			}
		}
		if images != c.images || !reflect.DeepEqual(again, first) {
			operations, _ := Diff(first, again)
			t.Errorf("%s: %d new images, want %d, and otherwise the same pod: %+v", c.name, images, c.images, operations)
		}
	}
	o := testOptions()
	o.Offline, o.Namespace.Labels = true, map[string]string{"istio-injection": "enabled"}
	p, _ := Pod(aPod(nil), o)
	p.Labels["sidecar.istio.io/inject"] = "false"
	if _, r := Pod(p, testOptions()); r.Proxy != Pipe {
		t.Errorf("Istio's sidecar is refused: %+v", r)
	}
}

func TestIstioGateway(t *testing.T) {
	for name, change := range map[string]func(*corev1.Container){
		"injected":        func(*corev1.Container) {},
		"not yet":         func(c *corev1.Container) { c.Image = autoImage },
		"of Gateway API":  func(c *corev1.Container) { c.Args = []string{"proxy", "router"} },
		"a waypoint":      func(c *corev1.Container) { c.Args = []string{"proxy", "waypoint"} },
		"with a port map": func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 15090}} },
	} {
		p, r := Pod(aPod(func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Name: pod.IstioProxy, Image: "istio/proxyv2:1.31.1"}}
			change(&p.Spec.Containers[0])
		}), testOptions())
		if got, want := command(t, p, pod.IstioProxy), sidecarWait+" --report /dev/termination-log"; r.Proxy != Istio || got != want {
			t.Errorf("%s: %+v: the hook is %q, want %q", name, r, got, want)
		}
	}
}

func TestChooseIstio(t *testing.T) {
	enabled := map[string]string{"istio-injection": "enabled"}
	for _, c := range []struct {
		name   string
		ns     map[string]string
		change func(*corev1.Pod)
		want   Proxy
		note   string
	}{
		{"the namespace's label", enabled, nil, Istio, "its sidecar is expected"},
		{"a revision", map[string]string{"istio.io/rev": "canary"}, nil, Istio, ""},
		{"a revision of the pod", nil, func(p *corev1.Pod) { p.Labels["istio.io/rev"] = "canary" }, Istio, ""},
		{"not for this pod", enabled, func(p *corev1.Pod) { p.Labels["sidecar.istio.io/inject"] = "false" }, Pipe, ""},
		{"not in this namespace", map[string]string{"istio-injection": "disabled"}, func(p *corev1.Pod) { p.Labels["sidecar.istio.io/inject"] = "true" }, Pipe, ""},
		{"never a second proxy", enabled, func(p *corev1.Pod) { p.Annotations[annotationProxy] = "pipe" }, Istio, "a second proxy is not added"},
		{"set without its injection", enabled, func(p *corev1.Pod) {
			p.Labels["sidecar.istio.io/inject"], p.Annotations[annotationProxy] = "false", "istio"
		}, Sockets, "Istio's injection is disabled"},
		{"proxyless gRPC", enabled, func(p *corev1.Pod) { p.Annotations[pod.IstioTemplates] = "grpc-agent" }, Sockets, "proxyless gRPC"},
		{"proxyless gRPC, its namespace unknown", nil, func(p *corev1.Pod) { p.Annotations[pod.IstioTemplates] = "grpc-agent" }, Sockets, "proxyless gRPC"},
		{"a template, its namespace unknown", nil, func(p *corev1.Pod) { p.Annotations[pod.IstioTemplates] = "sidecar,hosts" }, Istio, "its sidecar is expected"},
		{"a template where Istio does not inject", map[string]string{"kubernetes.io/metadata.name": "shop"}, func(p *corev1.Pod) { p.Annotations[pod.IstioTemplates] = "sidecar" }, Pipe, ""},
		{"sockets", enabled, func(p *corev1.Pod) { p.Annotations[annotationProxy] = "sockets" }, Sockets, ""},
		{"never a second proxy next to one that is there", nil, func(p *corev1.Pod) {
			*p = *withIstio(p, native)
			p.Annotations[annotationProxy] = "pipe"
		}, Istio, "a second one is not added"},
	} {
		o := testOptions()
		o.Namespace.Labels = c.ns
		if p, r := Pod(aPod(c.change), o); r.Proxy != c.want || r.Proxy == Istio && pod.Find(&p.Spec, pod.Sidecar) != nil ||
			!strings.Contains(strings.Join(r.Notes, "\n"), c.note) {
			t.Errorf("%s: %+v, want %s and a note %q", c.name, r, c.want, c.note)
		}
	}
}

func TestMergeStats(t *testing.T) {
	lists := []statsList{{"inclusionPrefixes", []string{"p"}}, {"inclusionSuffixes", []string{"s", "t"}}, {"inclusionRegexps", nil}}
	const both = "proxyStatsMatcher:\n  inclusionPrefixes:\n  - p\n  inclusionSuffixes:\n"
	for _, c := range []struct{ name, config, want string }{
		{"nothing", "", both + "  - s\n  - t\n"},
		{"other settings", "# ours\nconcurrency: 2 # few\nproxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'false'}",
			"concurrency: 2\nproxyMetadata:\n  EXIT_ON_ZERO_ACTIVE_CONNECTIONS: \"false\"\n" + both + "  - s\n  - t\n"},
		{"some of it", "proxyStatsMatcher:\n  inclusionSuffixes: [t, u]\n", both + "  - t\n  - u\n  - s\n"},
		{"protobuf's names", "proxy_stats_matcher: {inclusion_suffixes: [u]}\n", "proxy_stats_matcher:\n  inclusion_suffixes:\n  - u\n  - s\n  - t\n  inclusionPrefixes:\n  - p\n"},
		{"JSON", `{"concurrency":2}`, "concurrency: 2\n" + both + "  - s\n  - t\n"},
		{"null", "proxyStatsMatcher:\n", both + "  - s\n  - t\n"},
	} {
		got, err := mergeStats(c.config, lists)
		if err != nil || got != c.want {
			t.Errorf("%s: %v:\n%s\nwant\n%s", c.name, err, got, c.want)
		}
		if again, _ := mergeStats(got, lists); again != got {
			t.Errorf("%s: twice:\n%s", c.name, again)
		}
	}
	for _, config := range []string{"[]", "proxyStatsMatcher: [a]", "proxyStatsMatcher: {inclusionSuffixes: a}", "a: b\n---\nc: d\n"} {
		if got, err := mergeStats(config, lists); err == nil {
			t.Errorf("%q became %q", config, got)
		}
	}
}

func TestStatsAnnotationReplacesTheMatcher(t *testing.T) {
	p := withIstio(aPod(func(p *corev1.Pod) { p.Annotations[annotationStatsSuffixes] = "mine,downstream_cx_active" }), native)
	got, _ := Pod(p, testOptions())
	if want := "mine,downstream_cx_active,downstream_rq_active,downstream_rq_total,downstream_cx_total"; got.Annotations[annotationStatsSuffixes] != want || got.Annotations[annotationProxyConfig] != "" {
		t.Errorf("%q", got.Annotations)
	}
}
