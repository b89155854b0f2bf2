//go:build e2e

package e2e

import (
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shape is a pod as people write it, whose programs are stand-ins on the node.
type shape struct {
	name string
	spec string // of the pod; the container web serves on port 8080

	// does has the reaction of each stand-in to SIGTERM, by container: exits (the default), finishes, finishes within 3s, reloads,
	// or ignores.
	does map[string]string

	app    string // what --app says; empty: there is no second plan
	inject bool   // lastcall
	more   string // of the pod's annotations
}

const web = `name: web, image: "app:1", ports: [{name: http, containerPort: 8080}]`

const (
	front  = `name: web, image: "front:1", command: [front, "--upstream=http://127.0.0.1:8082"], ports: [{name: http, containerPort: 8080}]`
	behind = `name: app, image: "app:1", ports: [{containerPort: 8082}]`
)

func does(what ...string) map[string]string {
	out := map[string]string{"web": what[0]}
	for i := 1; i < len(what); i += 2 {
		out[what[i]] = what[i+1]
	}
	return out
}

func hooked(hook string) string {
	return `containers: [{` + web + `, lifecycle: {preStop: ` + hook + `}}]`
}

func exec1(command string) string { return hooked(`{exec: {command: ` + command + `}}`) }

func cmdWeb(command string) string { return `containers: [{` + web + `, command: ` + command + `}]` }

func nginxWith(command string) string {
	return `containers: [{name: web, image: "nginx:1.27", ports: [{name: http, containerPort: 8080}], ` +
		`lifecycle: {preStop: {exec: {command: ` + command + `}}}}]`
}

func graceOf(seconds, spec string) string {
	return `terminationGracePeriodSeconds: ` + seconds + `, ` + spec
}

var shapes = []shape{
	{name: "no hook, exits", spec: `containers: [{` + web + `}]`, app: "exits"},
	{name: "no hook, finishes", spec: `containers: [{` + web + `}]`, does: does("finishes"), app: "finishes"},
	{name: "no hook, ignores", spec: graceOf("10", `containers: [{`+web+`}]`), does: does("ignores"), app: "ignores"},
	{name: "exec sleep", spec: exec1(`[sleep, "3"]`), app: "exits"},
	{name: "sleep action", spec: hooked(`{sleep: {seconds: 3}}`), does: does("finishes"), app: "finishes"},
	{name: "sleep, then nginx quits", spec: nginxWith(`[sh, -c, "sleep 3 && nginx -s quit"]`), does: does("finishes")},
	{name: "folded block", spec: nginxWith(`[sh, -c, "sleep 20 nginx -s quit"]`), does: does("finishes")},
	{name: "image without the hook's program", app: "exits",
		spec: `containers: [{name: web, image: "gcr.io/distroless/static", ports: [{name: http, containerPort: 8080}], ` +
			`lifecycle: {preStop: {exec: {command: [sleep, "10"]}}}}]`},
	{name: "script in several arguments", spec: exec1(`[sh, -c, sleep, "10"]`), app: "exits"},
	{name: "quoted command line", spec: exec1(`["sleep 10"]`), app: "exits"},
	{name: "timeout", spec: exec1(`[timeout, "2", sleep, "10"]`), app: "exits"},
	{name: "loop without end", spec: graceOf("4", exec1(`[sh, -c, "while true; do sleep 1; done"]`)), app: "exits"},
	{name: "in the background", spec: exec1(`[sh, -c, "sleep 5 & sleep 2"]`), app: "exits"},
	{name: "exec in a script", spec: exec1(`[sh, -c, "exec sleep 3; sleep 9"]`), app: "exits"},
	{name: "signal, then sleep", spec: exec1(`[sh, -c, "kill -TERM 1; sleep 5"]`), does: does("finishes"), app: "finishes"},
	{name: "GET that fails", spec: hooked(`{httpGet: {port: http, path: /status/404}}`), app: "exits"},
	{name: "GET that takes its time", spec: hooked(`{httpGet: {port: http, path: /delay/3}}`), app: "exits"},
	{name: "GET of another port", spec: hooked(`{httpGet: {port: 9, path: /shutdown}}`), app: "exits"},
	{name: "TCP socket", spec: hooked(`{tcpSocket: {port: http}}`), app: "exits"},
	{name: "hook longer than grace", spec: graceOf("4", exec1(`[sleep, "20"]`)), does: does("finishes"), app: "finishes"},
	{name: "short grace", spec: graceOf("2", `containers: [{`+web+`}]`), does: does("finishes"), app: "finishes"},
	{name: "grace of zero", spec: graceOf("0", `containers: [{`+web+`}]`), does: does("finishes"), app: "finishes"},
	{name: "grace of zero and a hook", spec: graceOf("0", exec1(`[sleep, "5"]`)), does: does("finishes"), app: "finishes"},
	{name: "in the background, silent", spec: exec1(`[sh, -c, "sleep 5 >/dev/null 2>&1 & sleep 2"]`), app: "exits"},
	{name: "signal in the background", spec: exec1(`[sh, -c, "(sleep 2; kill -TERM 1) & sleep 1"]`), does: does("finishes"), app: "finishes"},
	{name: "log shipper", app: "exits",
		spec: `containers: [{` + web + `, lifecycle: {preStop: {sleep: {seconds: 10}}}}, {name: logs, image: "fluent/fluent-bit:3.1"}]`},
	{name: "two hooks", does: does("finishes", "metrics", "finishes"), app: "finishes",
		spec: `containers: [{` + web + `, lifecycle: {preStop: {sleep: {seconds: 2}}}}, ` +
			`{name: metrics, image: "metrics:1", ports: [{name: metrics, containerPort: 9113}], lifecycle: {preStop: {sleep: {seconds: 5}}}}]`},
	{name: "native sidecar", does: does("finishes", "logs", "exits"),
		spec: `initContainers: [{name: logs, image: "logs:1", restartPolicy: Always}], containers: [{` + web + `}]`},
	{name: "shell as PID 1", spec: graceOf("10", `containers: [{`+web+`, command: [sh, -c, "server; true"]}]`)},
	{name: "shell that becomes the app", spec: `containers: [{` + web + `, command: [sh, -c, "exec server"]}]`, app: "exits"},
	{name: "shell with a trap", does: does("finishes"),
		spec: `containers: [{` + web + `, command: [sh, -c, "trap 'kill $p' TERM; server & p=$!; wait; wait"]}]`},
	{name: "uWSGI reloads", does: does("reloads"),
		spec: graceOf("10", `containers: [{`+web+`, command: [uwsgi, --http-socket, ":8080", --master]}]`)},
	{name: "gunicorn's own time", does: does("finishes within 3s"),
		spec: `containers: [{` + web + `, command: [gunicorn, --graceful-timeout, "3", "app:app"]}]`},
	{name: "timeout of a script with a trap", spec: exec1(`[timeout, "1", sh, -c, "trap '' TERM; sleep 4"]`), app: "exits"},
	{name: "variable in a hook", app: "exits",
		spec: `containers: [{` + web + `, env: [{name: PAUSE, value: "5"}], lifecycle: {preStop: {exec: {command: [sleep, "$(PAUSE)"]}}}}]`},
	{name: "variable in arguments", does: does("finishes within 3s"),
		spec: `containers: [{` + web + `, env: [{name: T, value: "3"}], command: [gunicorn], args: [--graceful-timeout, "$(T)", "app:app"]}]`},
	{name: "SIGKILL from inside", spec: exec1(`[sh, -c, "kill -9 1; sleep 3"]`), app: "exits"},
	{name: "bash and a command after the server", spec: graceOf("10", cmdWeb(`[bash, -c, "server; true"]`))},
	{name: "helper first", app: "exits",
		spec: `containers: [{name: logs, image: "logs:1", lifecycle: {preStop: {sleep: {seconds: 5}}}}, {` + web + `}]`},
	{name: "sidecar with a hook", app: "exits",
		spec: `initContainers: [{name: logs, image: "logs:1", restartPolicy: Always, lifecycle: {preStop: {sleep: {seconds: 4}}}}], ` +
			`containers: [{` + web + `, lifecycle: {preStop: {sleep: {seconds: 2}}}}]`},
	{name: "braces in sh", spec: exec1(`[sh, -c, "for i in {1..3}; do sleep 1; done"]`), app: "exits"},
	{name: "pipefail in sh", spec: exec1(`[sh, -c, "set -euo pipefail; sleep 4"]`), app: "exits"},
	{name: "cd that fails", spec: exec1(`[sh, -c, "cd /none && sleep 4"]`), app: "exits"},
	{name: "trap at the exit", spec: exec1(`[sh, -c, "trap 'sleep 2' EXIT; sleep 1"]`), app: "exits"},
	{name: "SIGTERM to its own child", spec: exec1(`[sh, -c, "sleep 9 & kill $!; sleep 3"]`), app: "exits"},
	{name: "SIGTERM to its own shell", spec: exec1(`[sh, -c, "kill $$; sleep 4"]`), app: "exits"},
	{name: "usleep", spec: exec1(`[usleep, "3000000"]`), app: "exits"},
	{name: "front without the hook", app: "exits", spec: `containers: [{` + front + `}, {` + behind + `, lifecycle: {preStop: {sleep: {seconds: 4}}}}]`},
	{name: "app behind without the hook", app: "exits",
		spec: `containers: [{` + front + `, lifecycle: {preStop: {sleep: {seconds: 4}}}}, {` + behind + `}]`},
	{name: "both with hooks", app: "exits",
		spec: `containers: [{` + front + `, lifecycle: {preStop: {sleep: {seconds: 3}}}}, {` + behind + `, lifecycle: {preStop: {sleep: {seconds: 5}}}}]`},
	{name: "lastcall in front of both", spec: graceOf("14", `containers: [{`+front+`}, {`+behind+`}]`), inject: true, app: "exits"},
	{name: "lastcall and a sidecar that ignores", inject: true, does: does("exits", "logs", "ignores"),
		spec: graceOf("12", `initContainers: [{name: logs, image: "logs:1", restartPolicy: Always}], containers: [{`+web+`}]`)},
	{name: "lastcall with Envoy", spec: graceOf("14", `containers: [{`+web+`}]`), inject: true, more: `lastcall.dev/proxy: envoy`, app: "exits"},
	{name: "lastcall as Istio", spec: graceOf("14", `containers: [{`+web+`}]`), inject: true, more: `lastcall.dev/compat: istio`,
		app: "finishes", does: does("finishes")},
	{name: "native lastcall", spec: graceOf("14", `containers: [{`+web+`}]`), inject: true, app: "exits"},
	{name: "classic lastcall", spec: graceOf("14", `containers: [{`+web+`}]`), inject: true, app: "exits", more: `lastcall.dev/sidecar: classic`},
	{name: "lastcall and a hook", spec: graceOf("16", exec1(`[sh, -c, "sleep 3"]`)), inject: true, app: "finishes", does: does("finishes")},
	{name: "lastcall and an endless hook", spec: graceOf("8", exec1(`[sh, -c, "while true; do sleep 1; done"]`)), inject: true, app: "exits"},
	{name: "lastcall and a hook of its own", spec: graceOf("14", hooked(`{sleep: {seconds: 3}}`)), inject: true, more: `lastcall.dev/pre-stop: keep`,
		app: "finishes", does: does("finishes")},
	{name: "classic lastcall without a hook", spec: graceOf("12", hooked(`{sleep: {seconds: 2}}`)), inject: true,
		more: `lastcall.dev/sidecar: classic, lastcall.dev/pre-stop: none`, app: "finishes", does: does("finishes")},
	{name: "lastcall with a short grace", spec: graceOf("5", `containers: [{`+web+`}]`), inject: true, app: "exits"},
	{name: "lastcall by sockets", spec: graceOf("14", `containers: [{`+web+`}]`), inject: true, more: `lastcall.dev/proxy: sockets`, app: "exits"},
	{name: "lastcall and nginx", spec: graceOf("14", nginxWith(`[sh, -c, "sleep 3; nginx -s quit"]`)), inject: true, does: does("finishes")},
}

// TestPlanIsTheTruth deletes pods with a request of 8 s in flight while a client connects every 100 ms, and compares their
// ends with their plans: each time within 1.5 s, each verdict right or unknown. A machine with much to do is late: a pod
// that ended otherwise is tried again, alone.
func TestPlanIsTheTruth(t *testing.T) {
	n := newNamespace(t, map[string]string{})
	n.configMap()
	for _, s := range shapes {
		s.create(n)
	}
	pods := make([]*corev1.Pod, len(shapes))
	for i, s := range shapes { // the node is idle before the first is deleted
		pods[i] = s.serving(n)
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, 14)
	isWrong := make([]bool, len(shapes))
	for i, s := range shapes {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(s.name, func(t *testing.T) { isWrong[i] = len(s.try(t, existing(t, n.Name), pods[i])) > 0 })
		})
	}
	all.Wait()
	for i, s := range shapes {
		if !isWrong[i] {
			continue
		}
		s.name += " again"
		t.Run(s.name, func(t *testing.T) {
			n := existing(t, n.Name)
			s.create(n)
			for _, text := range s.try(t, n, s.serving(n)) {
				t.Error(text)
			}
		})
	}
}

func (s shape) create(n *namespace) {
	n.T.Helper()
	if _, err := client.CoreV1().Pods(n.Name).Create(n.T.Context(), s.pod(n.T), metav1.CreateOptions{}); err != nil {
		n.T.Fatalf("%s: %v", s.name, err)
	}
}

// serving is the shape's pod when it answers.
func (s shape) serving(n *namespace) *corev1.Pod {
	n.T.Helper()
	p := n.Ready(s.id())
	n.Until("answered in "+s.name, func() error {
		if got := ask(n.T.Context(), url(*p, "/get"), tolerance); got != "200" {
			return errors.New(got)
		}
		return nil
	})
	return p
}

// try deletes a shape's pod, and returns what its plans have otherwise.
func (s shape) try(t *testing.T, n *namespace, p *corev1.Pod) (wrong []string) {
	plans := map[string]planned{"plan": planOf(t, s.manifest(), "")}
	if s.app != "" {
		plans["plan --app "+s.app] = planOf(t, s.manifest(), s.app)
	}
	connect := patience
	if s.inject {
		connect = connects
	}
	e := n.finish(p, connect)
	t.Logf("%s: node: %v", s.name, e)
	for name, plan := range plans {
		t.Logf("%s: %s: %v", s.name, name, plan)
		for _, text := range plan.wrong(e) {
			wrong = append(wrong, name+" is wrong: "+text)
		}
	}
	return wrong
}
