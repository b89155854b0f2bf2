package pod_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

func containerOf(t *testing.T, text string) *corev1.Container {
	t.Helper()
	var c corev1.Container
	if err := yaml.UnmarshalStrict([]byte("{"+text+"}"), &c); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &c
}

// TestVariable: of two variables of one name, the kubelet's last one counts.
func TestVariable(t *testing.T) {
	c := containerOf(t, "name: a, env: [{name: A, value: first}, {name: B, value: b}, {name: A, value: last}]")
	if value, isSet := pod.Variable(c, "A"); !isSet || value != "last" {
		t.Errorf("%q, %v", value, isSet)
	}
}

// TestTimers: the timers of servers, in each form in which they are set.
func TestTimers(t *testing.T) {
	for text, want := range map[string]string{
		`command: [gunicorn, --graceful-timeout=60, app]`:                                                                                                             "1m0s",
		`command: [sh, -c, "exec gunicorn --graceful-timeout 60 app"]`:                                                                                                "1m0s",
		`env: [{name: GUNICORN_CMD_ARGS, value: --graceful-timeout=90}]`:                                                                                              "1m30s",
		`command: [python, -m, uvicorn, app, --timeout-graceful-shutdown, "45"]`:                                                                                      "45s",
		`image: "cloudflare/cloudflared:2025.1.0", args: [tunnel, --grace-period, 2m, run]`:                                                                           "2m0s",
		`image: "traefik:v3", args: ["--entryPoints.web.transport.lifeCycle.graceTimeOut=40s", "--entryPoints.web.transport.lifeCycle.requestAcceptGraceTimeout=20"]`: "1m0s",
		`command: [bundle, exec, sidekiq, -t, "50"]`:                                                                                                                  "50s",
		`image: "kong:3", env: [{name: KONG_NGINX_MAIN_WORKER_SHUTDOWN_TIMEOUT, value: 70s}]`:                                                                         "1m10s",
		`image: "nginx:1", args: [nginx, -g, "daemon off; worker_shutdown_timeout 70s;"]`:                                                                             "1m10s",
		`env: [{name: SPRING_LIFECYCLE_TIMEOUT_PER_SHUTDOWN_PHASE, value: PT50S}]`:                                                                                    "50s",
		`env: [{name: JAVA_OPTS, value: "-Xmx1g -Dspring.lifecycle.timeout-per-shutdown-phase=50000"}]`:                                                               "50s",
		`args: [--shutdown-timeout=50s]`:                                                                                                                              "50s",
		`env: [{name: GRACEFUL_SHUTDOWN_TIMEOUT_SECONDS, value: "50"}]`:                                                                                               "50s",
		`env: [{name: TEMPORAL_WORKER_STOP_TIMEOUT, value: 50s}]`:                                                                                                     "50s",
		`env: [{name: DOTNET_SHUTDOWNTIMEOUTSECONDS, value: "50"}]`:                                                                                                   "50s",
		`env: [{name: DAPR_GRACEFUL_SHUTDOWN_TIMEOUT, value: 50s}]`:                                                                                                   "50s",
		`env: [{name: JAVA_OPTS_APPEND, value: "-Dquarkus.shutdown.timeout=50"}]`:                                                                                     "50s",
		`env: [{name: VECTOR_GRACEFUL_SHUTDOWN_LIMIT_SECS, value: "50"}]`:                                                                                             "50s",
		`env: [{name: SHUTDOWN_TIMEOUT_MS, value: "50000"}]`:                                                                                                          "50s",
		`env: [{name: APP_SHUTDOWN_TIMEOUT, value: "50"}]`:                                                                                                            "",
		`command: [app, --graceful-timeout, "60", -t, "50", --timeout, 60s]`:                                                                                          "",
		`command: [gunicorn, --timeout, "600", app]`:                                                                                                                  "",
		`env: [{name: SHUTDOWN_TIMEOUT, valueFrom: {fieldRef: {fieldPath: x}}}]`:                                                                                      "",
	} {
		var all []string
		for _, timer := range pod.TimersOf(containerOf(t, "name: a, "+text)) {
			all = append(all, timer.Wait.String())
			if timer.Source == "" || timer.Name == "" {
				t.Errorf("%s: %+v", text, timer)
			}
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestServes: which containers requests reach, and to which of the others these pass them.
func TestServes(t *testing.T) {
	const web, logs = `{name: web, image: web, ports: [{name: http, containerPort: 80}]}`, `{name: logs, image: fluent-bit}`
	const metrics, db = `{name: exporter, ports: [{name: metrics, containerPort: 9113}]}`, `{name: db, image: proxy, args: [--port=5432, "a:b:c"]}`
	for _, tt := range []struct{ containers, target, want string }{
		{web, "", "web"},
		{web + ", " + logs, "", "web"},
		{logs + ", " + web, "http", "web"},
		{web + ", " + metrics, "", "web"},
		{`{name: a}, {name: b}`, "", "a b"},
		{`{name: a, ports: [{containerPort: 1}]}, {name: b, ports: [{containerPort: 2}]}`, "", "a b"},
		{`{name: a, ports: [{containerPort: 1}]}, {name: b, ports: [{containerPort: 2}]}`, "2", "b"},
		{`{name: a, ports: [{containerPort: 1}]}, {name: b, ports: [{containerPort: 2}]}`, "9", "a b"},
		{`{name: app, ports: [{containerPort: 80}], env: [{name: DB, value: "postgres://u@127.0.0.1:5432/x"}]}, ` + db, "", "app > db"},
		{`{name: app, ports: [{containerPort: 80}], env: [{name: H, value: localhost}, {name: P, value: "5432"}]}, ` + db, "", "app > db"},
		{`{name: app, ports: [{containerPort: 80}], env: [{name: U, value: "http://localhost:54321"}]}, ` + db, "", "app"},
		{`{name: nginx, image: nginx, ports: [{containerPort: 80}]}, {name: php, image: "php:8-fpm"}`, "", "nginx > php"},
		{`{name: auth, args: ["--up=http://localhost:8080"], ports: [{containerPort: 80}]}, {name: app, ports: [{containerPort: 8080}], env: [{name: SELF, value: "http://localhost:8080"}]}`, "", "auth > app"},
		{`{name: a, args: ["http://localhost:2"], ports: [{containerPort: 1}]}, {name: b, args: ["http://localhost:1"], ports: [{containerPort: 2}]}`, "", "a b"},
		{web + `, {name: istio-proxy, ports: [{containerPort: 15090}]}`, "", "web"},
	} {
		var spec corev1.PodSpec
		if err := yaml.UnmarshalStrict([]byte("{containers: ["+tt.containers+"]}"), &spec); err != nil {
			t.Fatalf("%s: %v", tt.containers, err)
		}
		var targets []intstr.IntOrString
		if tt.target != "" {
			targets = append(targets, intstr.Parse(tt.target))
		}
		serves, behind := pod.Serves(&spec, targets)
		var names []string
		for _, c := range serves {
			names = append(names, c.Name)
		}
		if len(behind) > 0 {
			names = append(names, ">")
		}
		for _, c := range behind {
			names = append(names, c.Name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("%s, target %q: %q, want %q", tt.containers, tt.target, got, tt.want)
		}
	}
}

// TestReacts: a program's stop signal, and its reaction to that.
func TestReacts(t *testing.T) {
	for text, want := range map[string]string{
		`image: "nginx:1.27"`:                                                              "SIGQUIT finishes",
		`image: "nginxinc/nginx-unprivileged:1"`:                                           "SIGQUIT finishes",
		`image: "nginx:1.27", command: [nginx, -g, "daemon off;"]`:                         "SIGQUIT finishes",
		`image: "nginx:1.27", command: [sh, -c, "exec nginx"]`:                             "SIGQUIT finishes",
		`image: "nginx:1.27", command: [sh, -c, "nginx"]`:                                  "SIGQUIT ignores",
		`image: "web:1", command: [nginx]`:                                                 "SIGTERM exits",
		`image: "registry.example.com/nginx:1"`:                                            "SIGQUIT finishes",
		`image: "httpd:2.4"`:                                                               "SIGWINCH finishes",
		`image: "haproxy:3.1"`:                                                             "SIGUSR1 finishes",
		`image: "php:8.3-fpm"`:                                                             "SIGQUIT closes its port",
		`image: "php:8.3-apache"`:                                                          "SIGWINCH finishes",
		`image: "wordpress:6"`:                                                             "SIGWINCH finishes",
		`image: "docker.io/library/wordpress:6-php8.3-fpm-alpine"`:                         "SIGQUIT closes its port",
		`image: "nextcloud:29-fpm"`:                                                        "SIGQUIT closes its port",
		`image: "wordpress:cli"`:                                                           "SIGTERM unknown",
		`image: "bitnami/wordpress:6"`:                                                     "SIGTERM unknown",
		`image: "php:8.3-cli"`:                                                             "SIGTERM unknown",
		`image: "redis:7"`:                                                                 "SIGTERM exits",
		`image: "web:1"`:                                                                   "SIGTERM unknown",
		`image: "web:1", command: [node, server.js]`:                                       "SIGTERM unknown",
		`image: "web:1", command: [ddtrace-run, gunicorn, app]`:                            "SIGTERM finishes",
		`image: "web:1", command: [newrelic-admin, run-program, uvicorn, app]`:             "SIGTERM finishes",
		`image: "web:1", command: [tini, -p, SIGTERM, --, uvicorn, app]`:                   "SIGTERM finishes",
		`image: "web:1", command: [timeout, -k, "5", "999", python, -m, http.server]`:      "SIGTERM exits",
		`image: "web:1", command: [su, app, -c, "node server.js"]`:                         "SIGTERM exits",
		`image: "web:1", command: [sudo, -u, app, gunicorn, app]`:                          "SIGTERM finishes",
		`image: "web:1", command: [busybox, httpd, -f]`:                                    "SIGTERM unknown",
		`image: "web:1", command: [busybox, sh, -c, gunicorn app]`:                         "SIGTERM finishes",
		`image: "web:1", command: [uv, run, --with, x, gunicorn, app]`:                     "SIGTERM finishes",
		`image: "web:1", args: [sh, -c, node server.js]`:                                   "SIGTERM unknown",
		`image: "web:1", args: [npm, start]`:                                               "SIGTERM exits",
		`image: "web:1", command: [npm, start]`:                                            "SIGTERM exits",
		`image: "node:22-alpine", command: [npm, start]`:                                   "SIGTERM unknown",
		`image: "node:22-alpine", command: [yarn, start]`:                                  "SIGTERM exits",
		`image: "web:1", command: [sh, -c, npm start]`:                                     "SIGTERM ignores",
		`image: "web:1", command: [sh, -c, npm start], lifecycle: {stopSignal: SIGINT}`:    "SIGINT ignores",
		`image: "web:1", command: [tini, --, sh, -c, node x.js]`:                           "SIGTERM exits",
		`image: "web:1", command: [tini, --, sh, -c, exec gunicorn app]`:                   "SIGTERM finishes",
		`image: "web:1", command: [dumb-init, bash, -c, gunicorn app]`:                     "SIGTERM finishes",
		`image: "web:1-alpine", command: [tini, -g, --, sh, -c, gunicorn app]`:             "SIGTERM finishes",
		`image: "web:1-alpine", command: [sh, -c, "migrate >/log; gunicorn app"]`:          "SIGTERM finishes",
		`image: "web:1", command: [bash, -c, "if x; then y; fi; exec 2>&1; gunicorn app"]`: "SIGTERM finishes",
		`image: "web:1", command: [bash, -c, "gunicorn app 2>&1"]`:                         "SIGTERM ignores",
		`image: "web:1", command: [bash, -c, "render < a > b && gunicorn app"]`:            "SIGTERM finishes",
		`image: "web:1", command: [bash, -c, "gunicorn app & wait"]`:                       "SIGTERM ignores",
		`image: "web:1", command: [tini, --, sh, -c, x], lifecycle: {stopSignal: SIGINT}`:  "SIGINT unknown",
		`image: "web:1", command: [tini, --, gunicorn, app]`:                               "SIGTERM finishes",
		`image: "web:1", command: [python3, -m, gunicorn, app]`:                            "SIGTERM finishes",
		`image: "web:1", command: [bash, -c, "gunicorn app; true"]`:                        "SIGTERM ignores",
		`image: "web:1", command: [bash, -c, "migrate; gunicorn app"]`:                     "SIGTERM finishes",
		`image: "web:1", command: [bash, -c, "migrate && exec gunicorn app"]`:              "SIGTERM finishes",
		`image: "web:1", command: [uwsgi, --master]`:                                       "SIGTERM reloads",
		`image: "web:1", command: [uwsgi, --ini, app.ini]`:                                 "SIGTERM unknown",
		`image: "web:1", command: [uwsgi, --master], lifecycle: {stopSignal: SIGINT}`:      "SIGINT unknown",
		`image: "nginx:1.14.2"`:                                                            "SIGTERM exits",
		`image: "nginx:1.19.3-alpine"`:                                                     "SIGTERM exits",
		`image: "nginx:1.19.10"`:                                                           "SIGQUIT finishes",
		`image: "openresty/openresty:1.17.8.2-alpine"`:                                     "SIGQUIT finishes",
		`image: "kong:3"`: "SIGQUIT finishes",
		`image: "web:1", lifecycle: {stopSignal: SIGKILL}`: "SIGKILL exits",
	} {
		c := containerOf(t, "name: web, "+text)
		signal, _ := pod.StopSignal(c)
		reaction, _ := pod.Reacts(&corev1.PodSpec{Containers: []corev1.Container{*c}}, c, signal, true)
		if got := fmt.Sprintf("%s %s", signal, reaction); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
