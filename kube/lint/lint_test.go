package lint_test

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/lint"
)

// lintText examines a pod as YAML, "job" before it for a Job's.
func lintText(t *testing.T, text string) []lint.Finding {
	t.Helper()
	text, isJob := strings.CutPrefix(text, "job\n")
	var p corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return lint.Pod(&p, isJob, "")
}

func container(fields string) string {
	return "spec: {containers: [{name: web, image: web, " + fields + "}]}"
}

func config(text string) string {
	return "metadata: {annotations: {proxy.istio.io/config: '" + text + "'}}\n"
}

// byHand is a pod with a hand-written sidecar.
func byHand(form, args, more string) string {
	sidecar := "{name: lastcall, image: l, args: " + args + more
	app := "{name: web, image: w, lifecycle: {preStop: {exec: {command: [/lastcall/lastcall, wait]}}}}"
	if form == "native" {
		return "spec: {initContainers: [" + sidecar + ", restartPolicy: Always}], containers: [" + app + "]}"
	}
	return "spec: {containers: [" + sidecar + "}, " + app + "]}"
}

// TestVariablesThatGrow: the references are resolved up to a limit, and the finding reports that.
func TestVariablesThatGrow(t *testing.T) {
	text, err := os.ReadFile("../manifest/testdata/doubling.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := lintText(t, string(text))
	if len(found) != 1 || !strings.HasPrefix(found[0].String(), "LC007 spec.containers: the references between the variables add more than 128 KiB") {
		t.Errorf("found %v", found)
	}
}

func TestRules(t *testing.T) {
	const istio = "spec: {initContainers: [{name: istio-proxy, image: p, restartPolicy: Always, lifecycle: %}], containers: [{name: a, image: a}]}"
	for _, c := range []struct {
		name, pod string
		want      string // ID and part of the text; empty for nothing
	}{
		{"a hook that ends with its container", "spec: {containers: [{name: web, image: httpd, lifecycle: {preStop: {exec: {command: [/bin/sh, -c, sleep 5 && apachectl -k graceful-stop && sleep 60]}}}}]}", ""},
		{"a quit and an endless sleep", "spec: {containers: [{name: web, image: nginx, lifecycle: {preStop: {exec: {command: [sh, -c, nginx -s quit; sleep infinity]}}}}]}", "LC035 spec.containers[web].lifecycle.preStop: ends the app at once (nginx -s quit): it refuses the connections of clients that still have its address; sleep before it"},
		{"nothing to say", container("lifecycle: {preStop: {sleep: {seconds: 5}}}"), ""},
		{"Kubernetes' own example", "spec: {terminationGracePeriodSeconds: 120, containers: [{name: web, image: nginx, lifecycle: {preStop: {exec: {command: [/bin/sh, -c, sleep 180]}}}}]}", "LC001 spec.containers[web].lifecycle.preStop: sleeps for 3m0s of a grace period of 2m0s"},
		{"the sleep action", container("lifecycle: {preStop: {sleep: {seconds: 30}}}"), "LC001"},
		{"sleep itself, in minutes", container("lifecycle: {preStop: {exec: {command: [/usr/bin/sleep, 1m]}}}"), "LC001"},
		{"two sleeps", container("lifecycle: {preStop: {exec: {command: [bash, -ec, 'sleep 20; touch /x && sleep 10']}}}"), "LC001"},
		{"sleep in an argument", container("lifecycle: {preStop: {exec: {command: [sh, -c, 'echo sleep 90']}}}"), ""},
		{"a minimum drain beyond the last call", "metadata: {labels: {lastcall.dev/inject: 'true'}, annotations: {proxy.istio.io/config: 'proxyMetadata: {MINIMUM_DRAIN_DURATION: 29s}'}}\n" + container("tty: true"), "LC002 spec.terminationGracePeriodSeconds: MINIMUM_DRAIN_DURATION 29s is longer"},
		{"a sleep before the minimum drain", config("proxyMetadata: {MINIMUM_DRAIN_DURATION: 15s}") + "spec: {containers: [{name: istio-proxy, image: p, lifecycle: {preStop: {sleep: {seconds: 15}}}}]}", "LC002 spec.containers[istio-proxy]"},
		{"wait does not know the grace period", "spec: {terminationGracePeriodSeconds: 60, containers: [{name: web, image: web, lifecycle: {preStop: {exec: {command: [/lastcall, wait, --ports, '8080']}}}}]}", "LC002 spec.containers[web].env: TERMINATION_GRACE_PERIOD_SECONDS is not set: lastcall takes the default, 30s, for the grace period, which is 1m0s, so requests are ended that much earlier"},
		{"wait takes a shorter grace period for 30s", "spec: {terminationGracePeriodSeconds: 10, containers: [{name: web, image: web, lifecycle: {preStop: {exec: {command: [/lastcall, wait, --ports, '8080']}}}}]}", "LC002 spec.containers[web].env: TERMINATION_GRACE_PERIOD_SECONDS is not set: lastcall takes the default, 30s, for the grace period, which is 10s, so SIGKILL may come first"},
		{"wait has its variable", "spec: {terminationGracePeriodSeconds: 60, containers: [{name: web, image: web, env: [{name: TERMINATION_GRACE_PERIOD_SECONDS, value: '60'}], lifecycle: {preStop: {exec: {command: [/lastcall, wait, --ports, '8080']}}}}]}", ""},
		{"wait has its flag", "spec: {terminationGracePeriodSeconds: 60, containers: [{name: web, image: web, lifecycle: {preStop: {exec: {command: [/lastcall, wait, --ports, '8080', --grace-period, 60s]}}}}]}", ""},
		{"wait has a flag that is wrong", "spec: {terminationGracePeriodSeconds: 60, containers: [{name: web, image: web, lifecycle: {preStop: {exec: {command: [/lastcall, wait, --ports, '8080', --grace-period, 1m30]}}}}]}", "LC007 spec.containers[web]: --grace-period \"1m30\": must be a duration of whole seconds"},
		{"wait has a timeout", "spec: {terminationGracePeriodSeconds: 60, containers: [{name: web, image: web, lifecycle: {preStop: {exec: {command: [/lastcall, wait, --ports, '8080', --timeout=50s]}}}}]}", ""},
		{"wait with the default's grace period", "spec: {terminationGracePeriodSeconds: 30, containers: [{name: web, image: web, lifecycle: {preStop: {exec: {command: [/lastcall, wait, --ports, '8080']}}}}]}", ""},
		{"wait in a pod to inject", "metadata: {labels: {lastcall.dev/inject: 'true'}}\n" + "spec: {terminationGracePeriodSeconds: 60, containers: [{name: web, image: web, lifecycle: {preStop: {exec: {command: [/lastcall, wait, --ports, '8080']}}}}]}", ""},
		{"the mesh's drain", config("drainDuration: 60s") + container("tty: true"), "LC003"},
		{"a fixed drain", config("{terminationDrainDuration: 45s, proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: \"false\"}}") + container("tty: true"), "LC003"},
		{"a fixed drain by Istio's default", config("terminationDrainDuration: 30s") + container("tty: true"), "LC003 metadata.annotations[proxy.istio.io/config].terminationDrainDuration: without lastcall Istio's agent waits 30s of a grace period of 30s"},
		{"the same after injection", "metadata: {labels: {lastcall.dev/injected: 'true'}, annotations: {proxy.istio.io/config: 'terminationDrainDuration: 30s'}}\n" + container("tty: true"), ""},
		{"the app's environment", container("env: [{name: EXIT_ON_ZERO_ACTIVE_CONNECTIONS, value: 'true'}]"), "LC005 spec.containers[web].env"},
		{"where Istio copies it", "spec: {initContainers: [{name: istio-init, image: p, env: [{name: EXIT_ON_ZERO_ACTIVE_CONNECTIONS, value: 'true'}]}], containers: [{name: web, image: web}, {name: istio-proxy, image: p, env: [{name: EXIT_ON_ZERO_ACTIVE_CONNECTIONS, value: 'true'}]}]}", ""},
		{"istio-proxy's probe", "spec: {containers: [{name: istio-proxy, image: p, readinessProbe: {periodSeconds: 15, failureThreshold: 4, httpGet: {port: 15021}}}]}", ""},
		{"nested where it does not belong", config("proxyMetadata: {proxyStatsMatcher: {inclusionRegexps: [a]}}") + container("tty: true"), "LC007 metadata.annotations[proxy.istio.io/config]: proxyMetadata.proxyStatsMatcher"},
		{"not readable", config("terminationDrainDuration: soon") + container("tty: true"), "LC007"},
		{"no shell there", "spec: {containers: [{name: web, image: gcr.io/distroless/static, lifecycle: {preStop: {exec: {command: [sh, -c, sleep 5]}}}}]}", "LC008"},
		{"a shell for debugging", "spec: {containers: [{name: web, image: 'gcr.io/distroless/base:debug', lifecycle: {preStop: {exec: {command: [sleep, '5']}}}}]}", ""},
		{"the native preStop replaced", strings.ReplaceAll(istio, "%", "{postStart: {exec: {command: [pilot-agent, wait]}}}"), "LC009"},
		{"merged into Istio's", "spec: {initContainers: [{name: istio-proxy, image: auto, restartPolicy: Always, lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}}], containers: [{name: a, image: a}]}", ""},
		{"lastcall's hook drains too", strings.ReplaceAll(istio, "%", "{preStop: {exec: {command: [/lastcall/lastcall, wait, --envoy, '127.0.0.1:15000', --sidecar]}}}"), ""},
		{"Istio's own", strings.ReplaceAll(istio, "%", "{preStop: {exec: {command: [pilot-agent, request, POST, drain]}}}"), ""},
		{"slow to be unready, which nothing needs", container("readinessProbe: {periodSeconds: 15, httpGet: {port: 80}}"), ""},
		{"lastcall's defaults in a pod without it", "spec: {terminationGracePeriodSeconds: 2, containers: [{name: a, image: a}]}", ""},
		{"a misspelt annotation", "metadata: {annotations: {lastcall.dev/quite-time: 1s}}\n" + container("tty: true"), "LC007 metadata.annotations[lastcall.dev/quite-time]: is not an annotation of lastcall and is ignored: did you mean lastcall.dev/quiet-time?"},
		{"linkerd's sleep of a day", "metadata: {annotations: {config.alpha.linkerd.io/proxy-wait-before-exit-seconds: '86400'}}\n" + container("tty: true"), "LC011"},
		{"kuma's default", "metadata: {annotations: {kuma.io/sidecar-drain-time: 30s}}\n" + container("tty: true"), "LC011"},
		{"no grace at all", "spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: a, ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 5}}}}]}", "LC014"},
		{"no grace on purpose", "spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: a, ports: [{containerPort: 9090, name: http-metrics}]}]}", ""},
		{"a sidecar by hand", byHand("classic", "[agent, --sidecar, classic]", ""), ""},
		{"a native one by hand", byHand("native", "[agent, --sidecar=native]", ", lifecycle: {preStop: {exec: {command: [/lastcall, wait, --sidecar]}}}"), ""},
		{"without its form", byHand("native", "[agent]", ""), "LC018 spec.initContainers[lastcall].args: lacks --sidecar native"},
		{"with another's form", byHand("classic", "[agent, --sidecar, native]", ""), "LC018 spec.containers[lastcall].args: --sidecar native is wrong"},
		{"native without a hook", byHand("native", "[agent, --sidecar, native]", ""), "LC018 spec.initContainers[lastcall].lifecycle: lacks a preStop"},
		{"classic with a hook", byHand("classic", "[agent, --sidecar, classic]", ", lifecycle: {preStop: {sleep: {seconds: 5}}}"), "LC018 spec.containers[lastcall].lifecycle.preStop: delays the SIGTERM"},
		{"no hook asks it", strings.ReplaceAll(byHand("classic", "[agent]", ""), "wait]", "version]"), ""},
		{"the netstat loop", container("lifecycle: {preStop: {exec: {command: [/bin/sh, -c, 'while [ $(netstat -plunt | grep tcp | wc -l) -ne 0 ]; do sleep 1; done']}}}"), "LC015"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, f := range lintText(t, c.pod) {
				got = append(got, f.String())
			}
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("found %q, want nothing", got)
			case c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)):
				t.Errorf("found %q, want %q only", got, c.want)
			}
		})
	}
}
