package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/plan"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// shapes are pods as people write them: what lint finds, and what plan says of a request of 2 s in flight, of one that
// arrives after 4 s, and of each container's stop signal.
var shapes = []struct{ name, spec, target, lint, plan string }{
	{"a folded block", `containers: [{name: web, image: "nginx:1.27", ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, "sleep 20 nginx -s quit"]}}}}]`, "http",
		"LC008", "200, refused; web 0s"},
	{"its lines apart", `containers: [{name: web, image: "nginx:1.27", ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, "sleep 20\nnginx -s quit"]}}}}]`, "http",
		"", "200, 200; web 20s"},
	{"PHP-FPM without the hook of nginx", `containers: [{name: nginx, image: "nginx:1.27", ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 10}}}}, {name: php, image: "php:8.3-fpm", ports: [{containerPort: 9000}]}]`, "http",
		"LC036", "unknown, 502; nginx 10s, php 0s"},
	{"an app without the hook of its proxy", `containers: [{name: front, image: "front:1", args: [--upstream=http://127.0.0.1:3000], ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 10}}}}, {name: app, image: "app:1", ports: [{containerPort: 3000}]}]`, "http",
		"LC036", "unknown, unknown; front 10s, app 0s"},
	{"a proxy without the hook of its app", `containers: [{name: auth, image: "quay.io/oauth2-proxy/oauth2-proxy:v7.9.0", args: [--upstream=http://127.0.0.1:8080], ports: [{name: auth, containerPort: 4180}]}, {name: app, image: "app:1", ports: [{name: http, containerPort: 8080}], lifecycle: {preStop: {sleep: {seconds: 15}}}}]`, "auth",
		"LC019", "unknown, refused; auth 0s, app 15s"},
	{"a signal before the sleep", `terminationGracePeriodSeconds: 120, containers: [{name: pool, image: "pool:1", ports: [{name: tcp-sql, containerPort: 6432}], lifecycle: {preStop: {exec: {command: [/bin/sh, -c, "killall -INT pool && sleep 120"]}}}}]`, "tcp-sql",
		"LC001 LC035", "unknown, unknown; pool 0s"},
	{"a timer of the server", `containers: [{name: web, image: "web:1", command: [gunicorn, --graceful-timeout, "60", "app:app"], ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 5}}}}]`, "80",
		"LC038", "200, 200; web 5s"},
	{"a timer of the server that is too short", `containers: [{name: web, image: "web:1", command: [gunicorn, --graceful-timeout, "1", "app:app"], ports: [{containerPort: 80}]}]`, "80",
		"LC019", "cut, refused; web 0s"},
	{"Kubernetes' own example", `containers: [{name: web, image: "nginx:1.27", ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [/bin/sh, -c, "nginx -s quit; while killall -0 nginx; do sleep 1; done"]}}}}]`, "80",
		"LC008 LC035", "200, refused; web 0s"},
	{"a loop with a limit", `containers: [{name: web, image: "web:1", ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, "timeout 20 sh -c 'while netstat -tn | grep -q :80; do sleep 1; done'"]}}}}]`, "80",
		"", "unknown, unknown; web 0s?"},
	{"a loop without one", `containers: [{name: web, image: "web:1", ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, "while netstat -tn | grep -q :80; do sleep 1; done"]}}}}]`, "80",
		"LC015", "unknown, unknown; web 0s?"},
	{"a log shipper", `containers: [{name: web, image: "web:1", ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 10}}}}, {name: logs, image: "fluent/fluent-bit:3.1"}]`, "http",
		"", "200, 200; web 10s, logs 0s"},
	{"an exporter of metrics", `containers: [{name: web, image: "web:1", ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 10}}}}, {name: exporter, image: "exporter:1", ports: [{name: metrics, containerPort: 9113}]}]`, "http",
		"", "200, 200; web 10s, exporter 0s"},
	{"nginx -s quit", `containers: [{name: web, image: "nginx:1.27", ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {exec: {command: [/usr/sbin/nginx, -s, quit]}}}}]`, "http",
		"LC035", "200, refused; web 0s"},
	{"nginx -s quit, and the SIGTERM of another image", `containers: [{name: web, image: "web:1", command: [nginx, -g, daemon off;], ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, "nginx -s quit; sleep 1"]}}}}]`, "http",
		"LC035", "cut, refused; web 0s"},
	{"nginx -s quit, and a loop until its end", `containers: [{name: web, image: "nginx:1.27-alpine", ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, "nginx -s quit; while killall -0 nginx; do sleep 1; done"]}}}}]`, "http",
		"LC035", "200, refused; web 0s"},
	{"Envoy's listeners closed by its admin port", `containers: [{name: web, image: "envoyproxy/envoy:v1.31", ports: [{name: http, containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, "curl -X POST localhost:9901/drain_listeners; sleep 3"]}}}}]`, "http",
		"LC035", "200, refused; web 0s"},
	{"an exec without a command", `containers: [{name: web, image: "redis:7", ports: [{containerPort: 6379}], lifecycle: {preStop: {exec: {}}}}]`, "6379",
		"LC008", "cut, refused; web 0s"},
	{"a program that a distroless image lacks", `containers: [{name: web, image: "gcr.io/distroless/static", ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [sleep, "10"]}}}}]`, "80",
		"LC008", "unknown, unknown; web 0s"},
	{"uWSGI reloads", `containers: [{name: web, image: "web:1", command: [uwsgi, --http-socket, ":80", --master], ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 5}}}}]`, "80",
		"LC037", "200, cut; web 5s"},
	{"uWSGI that ends", `containers: [{name: web, image: "web:1", command: [uwsgi, --http-socket, ":80", --die-on-term], ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 5}}}}]`, "80",
		"", "200, unknown; web 5s"},
	{"a program that waits", `containers: [{name: web, image: "web:1", ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [/wait-shutdown]}}}}]`, "80",
		"", "unknown, unknown; web 0s?"},
	{"a program with a limit", `containers: [{name: web, image: "web:1", ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [timeout, "3", /drain]}}}}]`, "80",
		"", "unknown, unknown; web 0s?"},
	{"a sleep of five, then a program", `containers: [{name: web, image: "web:1", ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, "sleep 5; /drain"]}}}}]`, "80",
		"", "200, unknown; web 5s?"},
	{"a shell as PID 1", `containers: [{name: web, image: "web:1", command: [sh, -c, "node server.js"], ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 5}}}}]`, "80",
		"LC029", "200, 200; web 5s"},
	{"a shell below an init", `containers: [{name: web, image: "web:1", command: [tini, --, sh, -c, "node server.js"], ports: [{containerPort: 80}], lifecycle: {preStop: {sleep: {seconds: 5}}}}]`, "80",
		"LC029", "200, cut; web 5s"},
	{"kong quit", `containers: [{name: web, image: "kong:3", ports: [{containerPort: 8000}], lifecycle: {preStop: {exec: {command: [kong, quit, --wait=15]}}}}]`, "8000",
		"", "200, 200; web 15s"},
	{"a request for shutdown", `containers: [{name: web, image: "web:1", ports: [{containerPort: 80}], lifecycle: {preStop: {httpGet: {port: 80, path: /shutdown}}}}]`, "80",
		"LC035", "unknown, unknown; web 0s"},
	{"a shell without a script", `containers: [{name: web, image: "nginx:1.27", ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [sh, -c, sleep, "15"]}}}}]`, "80",
		"LC008", "200, refused; web 0s"},
	{"Traefik", `containers: [{name: web, image: "traefik:v3", args: ["--entryPoints.web.transport.lifeCycle.graceTimeOut=60"], ports: [{containerPort: 80}]}]`, "80",
		"LC038", "unknown, unknown; web 0s"},
	{"apachectl after a sleep", `containers: [{name: web, image: "httpd:2.4", ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [bash, -c, "sleep 1m; apachectl -k graceful-stop"]}}}}], terminationGracePeriodSeconds: 90`, "80",
		"", "200, 200; web 1m0s"},
}

func shape(spec, target string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: web}}\n" +
		"  template:\n    metadata: {labels: {app: web}}\n    spec: {" + spec + "}\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80, targetPort: " + target + "}]}\n"
}

// TestShapes: lint, plan and injection are right about them, or plan reports what is unknown.
func TestShapes(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			files := []*manifest.File{manifest.Parse("web.yaml", []byte(shape(s.spec, s.target)))}
			var ids []string
			for _, f := range lint.Examine(files, lint.Options{}).Findings {
				ids = append(ids, f.ID)
			}
			slices.Sort(ids)
			if got := strings.Join(ids, " "); got != s.lint {
				t.Errorf("lint: %q, want %q", got, s.lint)
			}
			workloads, unread := manifest.Serving(files)
			if len(unread) > 0 {
				t.Fatal(unread)
			}
			p := plan.New("web", workloads[0].Pod, plan.Options{Request: 2 * time.Second, Propagation: 4 * time.Second,
				Options: termination.Options{Targets: []intstr.IntOrString{intstr.Parse(s.target)}}})
			got := p.Fates[0].Result + ", " + p.Fates[len(p.Fates)-1].Result + ";"
			for i, c := range p.Containers {
				got += fmt.Sprintf(" %s %v", c.Name, p.Course.Containers[i].Signal)
				if p.Best.Containers[i].Signal > p.Course.Containers[i].Signal {
					got += "?"
				}
				got += ","
			}
			if got = strings.TrimSuffix(got, ","); got != s.plan {
				t.Errorf("plan: %q, want %q; notes %q", got, s.plan, p.Notes)
			}
		})
	}
}

// TestInjectionDrainsFirst: whatever an app's own hook does, lastcall's waits before it, and both requests are served.
func TestInjectionDrainsFirst(t *testing.T) {
	for _, s := range shapes {
		workloads, unread := manifest.Serving([]*manifest.File{manifest.Parse("web.yaml", []byte(shape(s.spec, s.target)))})
		if len(unread) > 0 {
			t.Fatal(unread)
		}
		in := workloads[0].Pod
		in.Labels["lastcall.dev/inject"] = "true"
		out, done := inject.Pod(in, inject.Options{Image: "lastcall", Token: "0000000000000000", Offline: true})
		if done.Outcome != inject.Injected {
			t.Errorf("%s: %s: %s", s.name, done.Outcome, done.Reason)
			continue
		}
		for i := range out.Spec.Containers {
			c := &out.Spec.Containers[i]
			if hook := pod.ReadHook(&out.Spec, c); len(c.Ports) > 0 && (len(hook.Steps) != 1 || hook.Steps[0].Do != pod.Wait || hook.OwnFirst) {
				t.Errorf("%s: container %s: %+v", s.name, c.Name, hook)
			}
		}
		p := plan.New("web", in, plan.Options{Request: 2 * time.Second, Propagation: 4 * time.Second})
		for _, f := range p.Fates {
			if !f.IsServed {
				t.Errorf("%s: at %v: %s %s", s.name, f.At, f.Result, f.Why)
			}
		}
	}
}
