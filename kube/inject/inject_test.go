package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

var update = flag.Bool("update", false, "write the golden files")

const testToken = "0123456789abcdef"

func testOptions() Options {
	return Options{Image: "lastcall:test", Token: testToken, ByDefault: true}
}

func TestAsIstioTheAppHasNoHook(t *testing.T) {
	p, r := Pod(annotated("lastcall.dev/compat", "istio"), testOptions())
	if r.Outcome != Injected || p.Spec.Containers[0].Lifecycle != nil {
		t.Errorf("%+v, the app's hooks are %+v", r, p.Spec.Containers[0].Lifecycle)
	}
	if c := pod.Find(&p.Spec, pod.Sidecar); c.Lifecycle.PreStop == nil { // a native sidecar's own, as Istio's
		t.Errorf("the sidecar's hooks are %+v", c.Lifecycle)
	}
}

func TestEnvoySidecar(t *testing.T) {
	o := testOptions()
	o.EnvoyImage = "registry.example.com/lastcall-envoy:test"
	p, r := Pod(annotated("lastcall.dev/proxy", "envoy"), o)
	if r.Outcome != Injected || r.Proxy != Envoy {
		t.Fatalf("%+v", r)
	}
	for _, c := range p.Spec.InitContainers {
		want := o.Image
		if c.Name == pod.Sidecar {
			want = o.EnvoyImage
			if !strings.Contains(strings.Join(c.Args, " "), "--proxy envoy") {
				t.Errorf("the sidecar's arguments are %q", c.Args)
			}
		}
		if c.Image != want {
			t.Errorf("container %s has the image %s, want %s", c.Name, c.Image, want)
		}
	}
	checkAgain(t, t.Name(), p, o)
}

func offline(w *manifest.Workload) Options {
	o := testOptions()
	o.Job, o.Offline = w.IsJob(), true
	return o
}

// TestManifests compares each injected manifest with the file of its name in
// testdata/golden, and injects into that once more, which must change nothing.
func TestManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/manifests/*")
	if err != nil || len(files) < 7 {
		t.Fatalf("manifests %v, error %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := readFile(t, file)
			got, done, err := Manifest(text, offline)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, filepath.Join("testdata/golden", filepath.Base(file)), got)
			again, _, err := Manifest(got, offline)
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("injected twice is not injected once (error %v):\n%s", err, again)
			}
			sameWithoutDone(t, text, got, done)
		})
	}
}

// sameWithoutDone checks that documents without a workload are the same bytes.
func sameWithoutDone(t *testing.T, before, after []byte, done []Done) {
	t.Helper()
	a, b := manifest.Documents(before), manifest.Documents(after)
	if len(a) != len(b) {
		t.Fatalf("%d documents, %d before", len(b), len(a))
	}
	touched := map[string]bool{}
	for _, d := range done {
		name, _, _ := strings.Cut(d.Where, " (")
		touched[name] = touched[name] || d.Result.Outcome != NotRequested
	}
	for i := range a {
		if name := fmt.Sprintf("document %d", i+1); !touched[name] && !bytes.Equal(a[i].Text, b[i].Text) {
			t.Errorf("%s has changed:\n%s", name, b[i].Text)
		}
	}
}

// TestUnreadableIsLeft: what is not readable stays byte for byte, with the reason and its place, and the rest is
// injected.
func TestUnreadableIsLeft(t *testing.T) {
	const rest = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: rest}\nspec: {containers: [{name: web, image: web}]}\n"
	for _, c := range []struct{ name, text, want string }{
		{"no YAML", "a: b\n---\nkind: [\n", "document 2 (line 2): line 3: "},
		{"a wrong type", "apiVersion: v1\nkind: Pod\nspec: {containers: 7}\n",
			"document 1 (line 1): Pod: spec.containers is not readable: it is a number and must be a list"},
		{"deep in a list", "apiVersion: v1\nkind: List\nitems:\n" +
			"- {apiVersion: batch/v1, kind: CronJob, spec: {jobTemplate: {spec: {template: {spec: []}}}}}\n",
			"document 1 (line 1): CronJob: spec.jobTemplate.spec.template.spec is not readable: it is a list and must be a mapping"},
		{"an alias of itself", "a: &a [*a]\n", "anchor 'a' value contains itself"},
		{"a kind without a template", "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: k}\n" +
			"spec: {template: {spec: {containers: [{image: k}]}}}\n", "Service k: Knative makes its pods"},
		{"an unknown kind", "apiVersion: example.com/v1\nkind: Farm\nmetadata: {name: f}\n" +
			"spec: {barn: {containers: [{name: f, image: f}]}}\n", "Farm f: holds containers, but its kind is unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, done, err := Manifest([]byte(c.text+rest), offline)
			if err != nil {
				t.Fatal(err)
			}
			var reasons []string
			for _, d := range done {
				if d.Result.Outcome == LeftAlone {
					reasons = append(reasons, fmt.Sprintf("%s: %v: %s", d.Where, d.What, d.Result.Reason))
				}
			}
			if len(reasons) != 1 || !strings.Contains(reasons[0], c.want) {
				t.Errorf("left alone: %q, want %q in it", reasons, c.want)
			}
			if !strings.HasPrefix(string(out), c.text) || !strings.Contains(string(out), "lastcall-init") &&
				!strings.Contains(string(out), "name: lastcall") {
				t.Errorf("the rest is not injected, or the text has changed:\n%s", out)
			}
		})
	}
}

// aPod is a small one that can be injected.
func aPod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func annotated(name, value string) *corev1.Pod {
	return aPod(func(p *corev1.Pod) { p.Annotations[name] = value })
}

func TestLeftAlone(t *testing.T) {
	for _, c := range []struct {
		name   string
		pod    *corev1.Pod
		reason string
		isErr  bool
	}{
		{"hostNetwork", aPod(func(p *corev1.Pod) { p.Spec.HostNetwork = true }), "hostNetwork: ", false},
		{"Windows", aPod(func(p *corev1.Pod) { p.Spec.OS = &corev1.PodOS{Name: corev1.Windows} }), "runs on Windows", false},
		{"Windows by its node", aPod(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "windows"} }), "runs on Windows", false},
		{"nothing in it", aPod(func(p *corev1.Pod) { p.Spec.Containers = nil }), "no containers", false},
		{"killed at once", aPod(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(0)) }), "without a drain", false},
		{"a container of our name", aPod(func(p *corev1.Pod) { p.Spec.Containers[0].Name = "lastcall" }), "already has a container lastcall", false},
		{"our port", aPod(func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 15006 }), "container web has port 15006", false},
		{"settings that cannot be read", annotated("proxy.istio.io/config", "statusPort: 70000"), "statusPort is 70000 (annotation proxy.istio.io/config, line 1)", true},
		{"an own annotation", annotated("lastcall.dev/quiet-time", "soon"), "LASTCALL_QUIET_TIME is \"soon\"", true},
		{"a proxy that is none", annotated("lastcall.dev/proxy", "nginx"), "must be pipe, envoy, sockets or istio", true},
		{"Envoy without an image", annotated("lastcall.dev/proxy", "envoy"), "--envoy-image", false},
		{"a Job that would never end", aPod(func(p *corev1.Pod) {
			p.Annotations["lastcall.dev/sidecar"] = "classic"
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "work"}}
		}), "shareProcessNamespace", false},
		{"a capture that is none", annotated("traffic.sidecar.istio.io/excludeInboundPorts", "all"), "annotation traffic.sidecar.istio.io/excludeInboundPorts", true},
		{"a capture by a program that is none", annotated("lastcall.dev/capture", "ebpf"), `lastcall.dev/capture is "ebpf"`, true},
		{"no hooks next to Istio's sidecar", withIstio(annotated(annotationPreStop, "none"), classic), "the preStop hooks are all that lastcall adds", false},
		{"TPROXY", annotated("sidecar.istio.io/interceptionMode", "TPROXY"), "TPROXY", true},
		{"too much memory", annotated("lastcall.dev/memory", "much"), "must be a quantity", true},
		{"a word that is none", annotated("lastcall.dev/inject", "perhaps"), "must be true or false", true},
		{"nothing to watch", aPod(func(p *corev1.Pod) {
			p.Annotations["lastcall.dev/proxy"] = "sockets"
			p.Spec.Containers[0].Ports = nil
		}), "there is nothing to watch", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, r := Pod(c.pod, testOptions())
			if r.Outcome != LeftAlone || !strings.Contains(r.Reason, c.reason) || (r.Err != nil) != c.isErr {
				t.Fatalf("%+v, want it left alone: %s", r, c.reason)
			}
			if status := got.Annotations[AnnotationStatus]; status != "left alone: "+r.Reason {
				t.Errorf("the pod says %q", status)
			}
			delete(got.Annotations, AnnotationStatus)
			if !reflect.DeepEqual(got, c.pod) {
				t.Errorf("the pod was changed: %+v", got)
			}
		})
	}
}

func TestEnabled(t *testing.T) {
	with := func(label, annotation string) *corev1.Pod {
		return aPod(func(p *corev1.Pod) {
			if label != "" {
				p.Labels[AnnotationInject] = label
			}
			if annotation != "" {
				p.Annotations[AnnotationInject] = annotation
			}
		})
	}
	for _, c := range []struct {
		name                         string
		label, annotation, namespace string
		in                           string
		byDefault                    bool
		want                         Outcome
	}{
		{name: "no setting anywhere", want: NotRequested},
		{name: "by hand", byDefault: true, want: Injected},
		{name: "the namespace", namespace: "true", want: Injected},
		{name: "the annotation against the namespace", annotation: "false", namespace: "true", want: NotRequested},
		{name: "the label against the annotation", label: "true", annotation: "false", want: Injected},
		{name: "the cluster's own", label: "true", in: "kube-system", want: NotRequested},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions()
			o.ByDefault = c.byDefault
			o.Namespace = Namespace{Name: c.in, Labels: map[string]string{}}
			if c.namespace != "" {
				o.Namespace.Labels[AnnotationInject] = c.namespace
			}
			before := with(c.label, c.annotation)
			got, r := Pod(before, o)
			if r.Outcome != c.want {
				t.Errorf("%+v, want %s", r, c.want)
			}
			if r.Outcome == NotRequested && !reflect.DeepEqual(got, before) {
				t.Error("the pod was changed")
			}
		})
	}
}

// TestPresence has the apps of a classic sidecar run the hook in their own containers, where it leaves what
// ends with them.
func TestPresence(t *testing.T) {
	o := testOptions()
	o.Sidecar, o.Capture = Classic, CaptureInit
	has := func(c *corev1.Container, command ...string) {
		t.Helper()
		h := c.Lifecycle.PreStop
		if !isExecHook(h) || !slices.Equal(h.Exec.Command, command) || len(c.VolumeMounts) != 1 || c.VolumeMounts[0].MountPath != mountBinary {
			t.Errorf("%s: %+v, %+v; want %q and the volume that it lies in", c.Name, h, c.VolumeMounts, command)
		}
	}
	one, _ := Pod(aPod(nil), o)
	has(apps(&one.Spec)[0], "/lastcall-bin/lastcall", "wait")
	if all := one.Spec.InitContainers; len(all) != 1 || all[0].Name != containerCapture {
		t.Errorf("%d init containers, the first is %s: an init container delays the pod by one of the kubelet's looks", len(all), all[0].Name)
	}
	sidecar := pod.Find(&one.Spec, pod.Sidecar)
	copies := func(c *corev1.Container) bool {
		i := slices.Index(c.Args, "--copy-to")
		return i > 0 && c.Args[i+1] == mountBinary+"/lastcall" &&
			slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volumeBinary && m.MountPath == mountBinary })
	}
	if !copies(sidecar) {
		t.Errorf("the sidecar does not copy the program: %q, %+v", sidecar.Args, sidecar.VolumeMounts)
	}
	// A native one's token and hook are in the golden files.
	if _, isSet := pod.Variable(sidecar, meshconfig.VariableSidecarToken); isSet || sidecar.Lifecycle.PreStop != nil {
		t.Error("a classic sidecar has a hook of its own, which would delay its SIGTERM until the end of the drain")
	}

	// The hook of an app that was added later needs the copy, too.
	own := aPod(nil)
	own.Annotations = map[string]string{annotationPreStop: "keep"}
	own.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	own, _ = Pod(own, o)
	if copies(pod.Find(&own.Spec, pod.Sidecar)) {
		t.Error("the sidecar copies a program that no hook runs")
	}
	own.Spec.Containers = append(own.Spec.Containers, corev1.Container{Name: "late", Image: "late:1"})
	if own, _ = Pod(own, o); !copies(pod.Find(&own.Spec, pod.Sidecar)) {
		t.Error("the sidecar does not copy the program for a later container")
	}

	// Another injector's container, and lastcall's own injection again.
	one.Spec.Containers = append(one.Spec.Containers, corev1.Container{Name: "late", Image: "late:1"})
	two, r := Pod(one, o)
	has(apps(&two.Spec)[0], "/lastcall-bin/lastcall", "wait", "--app-ports", "8080")
	has(apps(&two.Spec)[1], "/lastcall-bin/lastcall", "wait", "--app-ports", "none")
	if n, _ := pod.Variable(pod.Find(&two.Spec, pod.Sidecar), meshconfig.VariableAppContainers); n != "2" || len(two.Spec.InitContainers) != 1 || len(r.Notes) != 0 {
		t.Errorf("%s app containers, %d init containers, notes %q", n, len(two.Spec.InitContainers), r.Notes)
	}

	for name, change := range map[string]func(*corev1.Pod){
		"shared processes": func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = new(true) },
		"fixed wait": func(p *corev1.Pod) {
			p.Annotations = map[string]string{"proxy.istio.io/config": `proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: "false"}`}
		},
	} {
		p := aPod(nil)
		change(p)
		if p, r := Pod(p, o); r.Outcome != Injected || !pod.IsWaitGet(apps(&p.Spec)[0].Lifecycle.PreStop) || len(p.Spec.Volumes) != 1 {
			t.Errorf("%s: %+v, %+v", name, r, apps(&p.Spec)[0].Lifecycle)
		}
	}
	p := aPod(nil)
	p.Annotations = map[string]string{annotationPreStop: "keep"}
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	if _, r := Pod(p, o); !strings.Contains(strings.Join(r.Notes, "\n"), "cannot detect the end of container") {
		t.Errorf("an app's own preStop: notes %q", r.Notes)
	}
}

// TestAnotherInjectorAfterUs is the case for which reinvocationPolicy IfNeeded exists.
func TestAnotherInjectorAfterUs(t *testing.T) {
	first, _ := Pod(aPod(nil), testOptions())
	first.Spec.Containers = append(first.Spec.Containers, corev1.Container{
		Name: "late", Image: "late:1",
		LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9000}}},
	})
	o := testOptions()
	o.Token = "another-token-another"
	second, r := Pod(first, o)
	late := pod.Find(&second.Spec, "late")
	if r.Outcome != Injected || !pod.IsWaitGet(late.Lifecycle.PreStop) || late.ReadinessProbe.HTTPGet == nil || late.LivenessProbe.Exec == nil {
		t.Fatalf("%+v: %+v", r, late)
	}
	if got, want := late.Lifecycle.PreStop.HTTPGet.Path, "/wait/"+testToken+"?ports="; got != want {
		t.Errorf("its hook is %s, want %s", got, want)
	}
	// With two containers a restart of one must leave the other alone: each hook names its ports.
	if got, want := apps(&second.Spec)[0].Lifecycle.PreStop.HTTPGet.Path, "/wait/"+testToken+"?ports=8080"; got != want {
		t.Errorf("the first container's hook is %s, want %s", got, want)
	}
	sidecar := pod.Find(&second.Spec, "lastcall")
	if text, _ := pod.Variable(sidecar, meshconfig.VariableProbes); !strings.Contains(text, "/app-health/late/readyz") {
		t.Errorf("the agent answers %s only", text)
	}
	if n := len(second.Spec.InitContainers); n != 1 {
		t.Errorf("%d init containers, want the one of the first time", n)
	}
}

// TestStopSignal: the app keeps its stop signal and gets the hook; the sidecar stops at SIGTERM.
func TestStopSignal(t *testing.T) {
	for _, word := range []string{"keep", "none"} {
		got, r := Pod(aPod(func(p *corev1.Pod) {
			p.Annotations["lastcall.dev/pre-stop"] = word
			p.Spec.OS = &corev1.PodOS{Name: corev1.Linux}
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: new(corev1.SIGUSR1)}
		}), testOptions())
		app := got.Spec.Containers[0].Lifecycle
		if r.Outcome != Injected || app == nil || app.StopSignal == nil || *app.StopSignal != corev1.SIGUSR1 || pod.IsWaitGet(app.PreStop) != (word == "keep") {
			t.Errorf("%s: %+v: %+v", word, r, app)
		}
		if own := pod.Find(&got.Spec, pod.Sidecar).Lifecycle; own.StopSignal != nil {
			t.Errorf("%s: the sidecar stops at %s", word, *own.StopSignal)
		}
	}
}

// TestNewerFieldsSurvive injects into a pod with fields that our types do not know.
func TestNewerFieldsSurvive(t *testing.T) {
	text := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"new","brandNew":1},
		"spec":{"newField":{"a":[1]},"containers":[{"name":"web","image":"w","newest":"kept","ports":[{"containerPort":80,"odd":true}]}],
		"initContainers":[{"name":"i","image":"i","newest":2}]}}`
	for _, sidecar := range []Sidecar{Native, Classic} {
		out, _, err := Manifest([]byte(text), func(*manifest.Workload) Options {
			o := testOptions()
			o.Sidecar = sidecar
			return o
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{`"brandNew": 1`, `"newField"`, `"newest": "kept"`, `"odd": true`, `"newest": 2`, `"lastcall-podinfo"`} {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: no %s in\n%s", sidecar, want, out)
			}
		}
		if !json.Valid(out) {
			t.Errorf("JSON became something else:\n%s", out)
		}
	}
}

// checkAgain injects into a pod that is injected, which must change nothing.
func checkAgain(t *testing.T, name string, p *corev1.Pod, o Options) {
	t.Helper()
	if again, _ := Pod(p, o); !reflect.DeepEqual(again, p) {
		operations, _ := Diff(p, again)
		text, _ := json.Marshal(operations)
		t.Errorf("%s: injected twice is not injected once: %s", name, text)
	}
}

// applied is the patch applied to the tree, for comparison.
func applied(t *testing.T, before any, operations []Operation) (out any) {
	t.Helper()
	text, err := json.Marshal(before)
	encoded, err2 := json.Marshal(operations)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(encoded)
	if err == nil {
		text, err = patch.Apply(text)
	}
	if err := errors.Join(err, json.Unmarshal(text, &out)); err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzManifest: no text makes it panic, what it writes can be read again, and injecting
// into that changes nothing.
func FuzzManifest(f *testing.F) {
	files, _ := filepath.Glob("testdata/manifests/*")
	for _, file := range files {
		f.Add(readFile(f, file))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		out, done, err := Manifest(text, offline)
		if err != nil || len(done) == 0 {
			return
		}
		if _, _, err := Manifest(out, offline); err != nil {
			t.Fatalf("what was written cannot be injected again: %v\n%s", err, out)
		}
	})
}

func TestUnsetStaysUnset(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels:}\nspec:\n  nodeName:\n  containers:\n  - {name: a, image: a, command:, tty}\n"
	out, _, err := Manifest([]byte(text), offline)
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := Manifest(out, offline)
	if err != nil || !bytes.Equal(out, again) {
		t.Errorf("%v:\n%s", err, out)
	}
	if strings.Contains(string(out), "''") {
		t.Errorf("nothing became a text:\n%s", out)
	}
}

func TestQualityOfServiceStays(t *testing.T) {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	got, _ := Pod(aPod(func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = list }), testOptions())
	if !isGuaranteed(&got.Spec) {
		t.Error("a pod is no longer Guaranteed")
	}
	got, _ = Pod(aPod(func(p *corev1.Pod) { p.Spec.Resources = &corev1.ResourceRequirements{Limits: list} }), testOptions())
	for _, c := range got.Spec.InitContainers {
		if len(c.Resources.Requests)+len(c.Resources.Limits) > 0 {
			t.Errorf("%s asks for more than the pod's own budget may hold: %+v", c.Name, c.Resources)
		}
	}
}

func TestOtherStatusPort(t *testing.T) {
	p := annotated("proxy.istio.io/config", "statusPort: 16020\nproxyAdminPort: 16000")
	p.Annotations["traffic.sidecar.istio.io/excludeInboundPorts"] = " 9100 "
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}}}
	got, r := Pod(p, testOptions())
	if r.Outcome != Injected {
		t.Fatalf("%+v", r)
	}
	args := pod.Find(&got.Spec, pod.Sidecar).Args
	if want := []string{"capture", "--exclude-inbound-ports=9100", "--status-port", "16020", "--", program, "agent"}; !slices.Equal(args[:len(want)], want) {
		t.Errorf("%q", args)
	}
	app := pod.Find(&got.Spec, "web")
	if app.ReadinessProbe.HTTPGet.Port.IntVal != 16020 || app.Lifecycle.PreStop.HTTPGet.Port.IntVal != 16020 || got.Annotations["prometheus.io/port"] != "16020" {
		t.Errorf("%+v", got)
	}
}
