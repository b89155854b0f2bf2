package inject

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Istio's own injector (the module istio.io/istio of 2026-08-27 with the chart istio-discovery's templates and values) has
// made testdata/istio/injected of pods, and offline-injected of offline, which is lastcallctl inject of pods. The program
// that calls it is testdata/istio/injector.go.txt; its module requires istio.io/istio:
//
//	go run . -chart $(go list -m -f '{{.Dir}}' istio.io/istio)/manifests/charts/istio-control/istio-discovery \
//	    -mesh 'defaultConfig: {proxyStatsMatcher: {inclusionPrefixes: [cluster.outbound]}}' -in pods -out injected

func istioManifest(t *testing.T, file string, isOffline bool) ([]byte, []Done) {
	t.Helper()
	o := func(w *manifest.Workload) Options {
		o := offline(w)
		o.Offline = isOffline
		o.MeshConfig = "defaultConfig: {proxyStatsMatcher: {inclusionPrefixes: [cluster.outbound]}}"
		o.Namespace.Labels = map[string]string{"istio-injection": "enabled"}
		return o
	}
	out, done, err := Manifest(readFile(t, file), o)
	if err != nil || len(done) != 1 {
		t.Fatalf("%s: %v, %d workloads", file, err, len(done))
	}
	return out, done
}

func compareGolden(t *testing.T, golden string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, readFile(t, golden)) {
		t.Errorf("differs from %s; go test -update ./kube/inject writes it; then look at git diff", golden)
	}
}

// TestInjectedByIstio injects into pods that Istio's injector has made, and into manifests before it.
func TestInjectedByIstio(t *testing.T) {
	files, err := filepath.Glob("testdata/istio/pods/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	proxyHooks := map[string]string{
		"native.yaml":  "pilot-agent request --debug-port=15020 POST drain",
		"classic.yaml": "wait --envoy 127.0.0.1:15000 --pilot-agent 15020 --sidecar --ports 8080/http",
		"gateway.yaml": "wait --envoy 127.0.0.1:15000 --pilot-agent 15020 --sidecar --report /dev/termination-log",
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			got, _ := istioManifest(t, filepath.Join("testdata/istio/injected", name), false)
			compareGolden(t, filepath.Join("testdata/istio/golden", name), got)

			before, _ := istioManifest(t, file, true)
			compareGolden(t, filepath.Join("testdata/istio/offline", name), before)

			// Istio keeps what was there before it, and the webhook then changes no hook.
			_, after := istioManifest(t, filepath.Join("testdata/istio/offline-injected", name), false)
			p := after[0].Workload.Pod
			if again, r := Pod(p, testOptions()); r.Outcome != Injected {
				t.Errorf("%+v", r)
			} else {
				for _, c := range pod.Containers(&again.Spec) {
					if was := command(t, p, c.Name); command(t, again, c.Name) != was && c.Name != pod.IstioProxy {
						t.Errorf("the hook of %s was %q and becomes %q", c.Name, was, command(t, again, c.Name))
					}
				}
				if want := proxyHooks[name]; command(t, again, pod.IstioProxy) != want {
					t.Errorf("istio-proxy's hook is %q, want %q", command(t, again, pod.IstioProxy), want)
				}
				if name != "grpc-agent.yaml" && !strings.Contains(again.Annotations[annotationProxyConfig], "cluster.outbound") {
					t.Errorf("the mesh's statistics are lost:\n%s", again.Annotations[annotationProxyConfig])
				}
			}
			if want := proxyHooks[name]; command(t, p, pod.IstioProxy) != want {
				t.Errorf("after Istio's injector, istio-proxy's hook is %q, want %q", command(t, p, pod.IstioProxy), want)
			}
			if c := pod.Find(&p.Spec, pod.IstioProxy); slices.Contains([]string{"classic.yaml", "gateway.yaml"}, name) && !mounts(c) {
				t.Errorf("istio-proxy lacks the volume with the program: %+v", c.VolumeMounts)
			}
		})
	}
}
