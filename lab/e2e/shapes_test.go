//go:build e2e

package e2e

import (
	"errors"
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
	{name: "sleep as long as the request", spec: hooked(`{sleep: {seconds: 11}}`), app: "exits"},
	{name: "sleep, then nginx quits", spec: nginxWith(`[sh, -c, "sleep 3 && nginx -s quit"]`), does: does("finishes")},
	{name: "folded block", spec: nginxWith(`[sh, -c, "sleep 20 nginx -s quit"]`), does: does("finishes")},
	{name: "image without the hook's program", app: "exits",
		spec: `containers: [{name: web, image: "gcr.io/distroless/static", ports: [{name: http, containerPort: 8080}], ` +
			`lifecycle: {preStop: {exec: {command: [sleep, "10"]}}}}]`},
	{name: "script in several arguments", spec: exec1(`[sh, -c, sleep, "10"]`), app: "exits"},
	{name: "quoted command line", spec: exec1(`["sleep 10"]`), app: "exits"},
	{name: "no such program", spec: exec1(`[/no/such/program]`), app: "exits"},
	{name: "timeout", spec: exec1(`[timeout, "2", sleep, "10"]`), app: "exits"},
	{name: "loop of three", spec: exec1(`[sh, -c, "for i in 1 2 3; do sleep 1; done"]`), app: "exits"},
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
	{name: "bash and one command", spec: `containers: [{` + web + `, command: [bash, -c, "server"]}]`},
	{name: "shell with a trap", does: does("finishes"),
		spec: `containers: [{` + web + `, command: [sh, -c, "trap 'kill $p' TERM; server & p=$!; wait; wait"]}]`},
	{name: "uWSGI reloads", does: does("reloads"),
		spec: graceOf("10", `containers: [{`+web+`, command: [uwsgi, --http-socket, ":8080", --master]}]`)},
	{name: "gunicorn's own time", does: does("finishes within 3s"),
		spec: `containers: [{` + web + `, command: [gunicorn, --graceful-timeout, "3", "app:app"]}]`},
	{name: "native lastcall", spec: graceOf("14", `containers: [{`+web+`}]`), inject: true, app: "exits"},
	{name: "classic lastcall", spec: graceOf("14", `containers: [{`+web+`}]`), inject: true, app: "exits", more: `lastcall.dev/sidecar: classic`},
	{name: "lastcall and a hook", spec: graceOf("16", exec1(`[sh, -c, "sleep 3"]`)), inject: true, app: "finishes", does: does("finishes")},
	{name: "lastcall and nginx", spec: graceOf("14", nginxWith(`[sh, -c, "sleep 3; nginx -s quit"]`)), inject: true, does: does("finishes")},
}

// TestPlanIsTheTruth deletes pods with a request of 8 s in flight while a client connects every 100 ms, and compares their
// ends with their plans: each time within 1.5 s, each verdict right or unknown.
func TestPlanIsTheTruth(t *testing.T) {
	n := newNamespace(t, map[string]string{})
	n.configMap()
	for _, s := range shapes {
		if _, err := client.CoreV1().Pods(n.Name).Create(t.Context(), s.pod(t), metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
	}
	pods := make([]*corev1.Pod, len(shapes))
	for i, s := range shapes { // the node is idle before the first is deleted
		pods[i] = n.Ready(s.id())
		n.Until("answered in "+s.name, func() error {
			if result := ask(t.Context(), url(*pods[i], "/get"), tolerance); result != "200" {
				return errors.New(result)
			}
			return nil
		})
	}
	t.Run("pods", func(t *testing.T) {
		for i, s := range shapes {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				n := existing(t, n.Name)
				plans := map[string]planned{"plan": planOf(t, s.manifest(), "")}
				if s.app != "" {
					plans["plan --app "+s.app] = planOf(t, s.manifest(), s.app)
				}
				connect := patience
				if s.inject {
					connect = connects
				}
				e := n.finish(pods[i], connect)
				t.Logf("%s: node: %v", s.name, e)
				for name, plan := range plans {
					t.Logf("%s: %s: %v", s.name, name, plan)
					for _, text := range plan.wrong(e) {
						t.Errorf("%s: %s is wrong: %s", s.name, name, text)
					}
				}
			})
		}
	})
}
