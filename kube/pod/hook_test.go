package pod_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

// hookOf reads the hook of a container in YAML's flow style.
func hookOf(t *testing.T, container, preStop string) pod.Hook {
	t.Helper()
	var c corev1.Container
	text := "{name: web, " + container + "lifecycle: {preStop: " + preStop + "}}"
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return pod.ReadHook(&corev1.PodSpec{Containers: []corev1.Container{c}}, &c)
}

// text is the hook's end: its shortest time, ? if it may take longer, its longest if there is one, and when and how it
// stops the app.
func text(h pod.Hook) string {
	out := h.Duration.String()
	if h.Duration.Hours() > 100 {
		out = "forever"
	}
	if !h.IsKnown {
		if out += "?"; h.Most > 0 {
			out += h.Most.String()
		}
	}
	switch {
	case h.Stops:
		out += fmt.Sprintf(" %s at %v", h.Stop, h.StopsAt)
	case h.MayStop:
		out += fmt.Sprintf(" may stop at %v", h.StopsAt)
	}
	if h.Failure() != "" {
		out += " fails"
	}
	return out
}

// TestScripts: a hook's script means what the shell makes of it.
func TestScripts(t *testing.T) {
	for script, want := range map[string]string{
		"kill -QUIT -1":                     "0s? may stop at 0s",
		"kill -TERM -- 1; sleep 2":          "2s unknown at 0s",
		"kill -s SIGQUIT $(cat /run/x.pid)": "0s unknown at 0s",
		"killall -q nginx":                  "0s unknown at 0s",
		"curl -s -o /dev/null -w '%{http_code}' -X POST http://127.0.0.1:80/api/shutdown": "0s unknown at 0s",
		"curl --retry 3 -m 5 localhost/stop?now=1":                                        "0s unknown at 0s",
		"curl -XPUT http://balancer.example.com/stop; sleep 3":                            "3s?",
		"python3 -c 'import time; time.sleep(12)'":                                        "12s",
		"perl -e 'sleep 6'":                                           "6s",
		"nc -w 3 localhost 80; sleep 4":                               "4s?",
		"nginx -s quit; while killall -0 nginx; do sleep 1; done":     "0s? finishes at 0s",
		"echo \"$(touch /tmp/down)\"; sleep 3":                        "3s",
		"case $X in a) sleep 1;; esac; sleep 2":                       "2s?3s",
		"sleep 5":                                                     "5s",
		"sleep 1m":                                                    "1m0s",
		"sleep 0.5":                                                   "500ms",
		"sleep 1 2s":                                                  "3s",
		"sleep 5 # for the endpoints":                                 "5s",
		"sleep $((10 + 5))":                                           "15s",
		"N=4; sleep $N; sleep ${M:-3}":                                "7s",
		"sleep ${M}":                                                  "0s?",
		"sleep 20 /usr/sbin/nginx -s quit\n":                          "0s fails",
		"sleep 20 && nginx -s quit":                                   "20s finishes at 20s",
		"sleep 20; nginx -s stop; sleep 5":                            "25s exits at 20s",
		"sleep ten || sleep 3":                                        "3s fails",
		"sleep ten && sleep 3":                                        "0s fails",
		"sleep infinity":                                              "forever",
		"while true; do sleep 1; done":                                "forever",
		"for i in $(seq 1 10); do sleep 1; done":                      "10s",
		"for i in {1..4}; do sleep 1; done; echo bye":                 "0s?",
		"i=0; while [ $i -lt 5 ]; do sleep 2; i=$((i+1)); done":       "10s",
		"for ((i=0;i<3;i++)); do sleep 1; done":                       "0s?",
		"while netstat -plnt | grep 8080; do sleep 1; done":           "0s?",
		"until ! nc -z localhost 80; do sleep 1; done; nginx -s quit": "0s? finishes at 0s",
		"while true; do sleep 1; test -f /x && break; done; sleep 4":  "5s?",
		"timeout 45 /app/drain":                                       "0s?45s may stop at 0s",
		"timeout 1 sh -c 'trap \"\" TERM; sleep 4'":                   "1s?",
		"timeout -s KILL 1 sh -c 'trap \"\" TERM; sleep 4'":           "1s",
		"timeout 5 sh -c 'trap \"\" TERM; sleep 4'":                   "4s",
		"set -o pipefail; sleep 5":                                    "0s?",
		"function f { sleep 5; }; f":                                  "0s?",
		"cat <<< x; sleep 5":                                          "0s?",
		"source /env; sleep 5":                                        "0s? may stop at 0s",
		"sleep ${A[0]}":                                               "0s?",
		"echo {} a{b; sleep 5":                                        "5s",
		"usleep 3000000; sleep 1":                                     "1s?4s",
		"cd /none && sleep 5":                                         "0s?5s",
		"echo x > /none/x && sleep 5":                                 "0s?5s",
		"echo x > /proc/1/fd/1 && sleep 5":                            "5s",
		"trap 'sleep 3' EXIT; sleep 1":                                "1s? may stop at 0s",
		"sleep 9 & kill $!; sleep 2":                                  "2s?9s",
		"sleep 9 & P=$!; sleep 1; kill $P 2>/dev/null; sleep 2":       "3s?9s",
		"kill -TERM $$; sleep 3":                                      "0s",
		"kill -TERM $(cat /run/app.pid); sleep 3":                     "3s unknown at 0s",
		"timeout 10 sleep 60":                                         "10s",
		"timeout --signal INT 9 sleep infinity":                       "9s",
		"kill -QUIT 1; sleep 9":                                       "9s unknown at 0s",
		"kill -9 1; sleep 4":                                          "4s",
		"kill -0 1 && sleep 4":                                        "0s?4s",
		"killall -INT pgbouncer && sleep 120":                         "2m0s unknown at 0s",
		"ps aux | grep app | awk '{print $2}' | xargs kill":           "0s unknown at 0s",
		"nginx -s reload; sleep 3":                                    "3s",
		"apachectl -k graceful-stop":                                  "0s finishes at 0s",
		"kong quit --wait=15":                                         "15s finishes at 15s",
		"curl -s http://localhost:8080/quit; sleep 5":                 "5s unknown at 0s",
		"wget -qO- localhost:8080/shutdown":                           "0s unknown at 0s",
		"curl -X POST localhost:8080/actuator/shutdown":               "0s unknown at 0s",
		"curl -s -X POST localhost:15020/quitquitquit":                "0s? may stop at 0s",
		"curl localhost:8080/deregister; sleep 9":                     "9s?",
		"curl -X POST localhost:9901/drain_listeners; sleep 9":        "9s refuses new ones at 0s",
		"curl -X POST localhost:9901/drain_listeners?graceful":        "0s? may stop at 0s",
		"exec 3<>/dev/tcp/127.0.0.1/80; echo x >&3; sleep 9":          "9s? may stop at 0s",
		"echo x > /dev/tcp/$HOST/80; sleep 9":                         "9s? may stop at 0s",
		"echo x > /dev/tcp/consul.example.com/80; sleep 9":            "9s?",
		"curl localhost:8080/deregister && sleep 9":                   "0s?",
		"touch /tmp/drain && sleep 9":                                 "9s",
		"tail --pid=$(pgrep x) -f /dev/null; sleep 9":                 "9s?",
		"kill $(pidof x) && while ps -p $P; do sleep 1; done":         "0s? unknown at 0s",
		"/wait-shutdown":                                              "0s? may stop at 0s",
		"if [ -f /x ]; then sleep 5; else sleep 5; fi":                "5s",
		"if [ -f /x ]; then exit 0; fi; sleep 5":                      "0s?5s",
		"set -e; false; sleep 5":                                      "0s",
		"set -e\ncurl localhost/x\nsleep 5":                           "0s?",
		"(sleep 3; exit 1); sleep 2":                                  "5s",
		"sleep 5 & sleep 3 & wait; sleep 1":                           "6s",
		"sleep 5 & sleep 2":                                           "2s?5s",
		"sleep 1; (sleep 5 & sleep 2); sleep 1":                       "4s?6s",
		"sleep 5 >/dev/null 2>&1 & sleep 2":                           "2s",
		"sleep 5 2>&1 >/dev/null & sleep 2":                           "2s?5s",
		"sleep 5 &>/log & sleep 2":                                    "0s?",
		"(sleep 2; nginx -s quit) & sleep 1":                          "1s?2s may stop at 1s",
		"tail -f /log & sleep 2":                                      "2s?",
		"f() { sleep 4; }; f; f":                                      "8s",
		"sleep 10\r\n":                                                "0s?",
		"sleep 5; )":                                                  "0s fails",
		"trap : TERM; sleep 6":                                        "6s",
		"[ $$ -eq 1 ] || sleep 1":                                     "1s",
	} {
		h := hookOf(t, "image: web, ", fmt.Sprintf("{exec: {command: [sh, -c, %q]}}", script))
		if got := text(h); got != want {
			t.Errorf("%q: %s, want %s; steps %+v", script, got, want, h.Steps)
		}
	}
}

// TestHooks: hooks without a script.
func TestHooks(t *testing.T) {
	const nginx, static, alpine = "image: nginx:1.27, ", "image: gcr.io/distroless/static, ", "image: node:22-alpine, "
	for _, tt := range []struct{ container, hook, want string }{
		{"", "{sleep: {seconds: 5}}", "5s"},
		{"", "{exec: {command: [sleep, $TIME]}}", "0s fails"},
		{"", "{exec: {command: [sleep, $(TIME)]}}", "0s fails"},
		{"", "{exec: {command: [bash, -c, --, sleep 30]}}", "30s"},
		{"", "{exec: {command: [kill, '-15', '1']}}", "0s unknown at 0s"},
		{"", "{exec: {command: [powershell.exe, -NoProfile, -Command, Start-Sleep -Seconds 40]}}", "40s"},
		{"", "{exec: {command: ['C:\\\\Windows\\\\powershell', Start-Sleep, -s, '7']}}", "7s"},
		{"", "{exec: {command: [pwsh, -c, Start-Sleep 7; Stop-Service w3svc]}}", "0s? may stop at 0s"},
		{"", "{exec: {command: [sh, -c, sleep $1, --, '3']}}", "3s"},
		{"", "{exec: {command: [sh, -c, 'sleep \"$0\"', '10']}}", "10s"},
		{"", "{exec: {command: [sh, -c, 'exec sleep \"$@\"', x, '8', '1']}}", "9s"},
		{"", "{exec: {command: [bash, -c, 'sleep ${1:-5}; sleep $#']}}", "5s"},
		{"", "{exec: {command: [sh, -c, 'sleep $1', x]}}", "0s fails"},
		{"", "{exec: {command: [sh, -c, 'wait() { sleep $1; }; wait 4; sleep $1', x, '2']}}", "6s"},
		{"", "{exec: {command: [sh, -c, 'while [ $# -gt 0 ]; do sleep $1; shift; done', x, '2']}}", "2s?"},
		{"", "{exec: {command: [sh, -c, 'shift; sleep $1', x, '2', '3']}}", "0s?"},
		{"", "{exec: {command: [/bin/sh, '-c,', sleep 10]}}", "0s fails"},
		{"", "{sleep: {seconds: -5}}", "0s fails"},
		{"", "{exec: {command: [/usr/bin/sleep, '5']}}", "5s"},
		{"", "{exec: {command: [timeout, '5']}}", "0s fails"},
		{"", "{exec: {command: [busybox, sleep, '5']}}", "5s"},
		{"", "{exec: {command: ['sleep 5']}}", "0s fails"},
		{"", "{exec: {command: [sleep, '5', '&&', nginx, -s, quit]}}", "0s fails"},
		{"", "{exec: {command: [sh, -c, sleep, '5']}}", "0s fails"},
		{"", "{exec: {command: [sh, 'sleep 5']}}", "0s fails"},
		{"", "{exec: {command: [sh, /scripts/stop.sh]}}", "0s? may stop at 0s"},
		{"", "{exec: {command: [bash, -ec, 'sleep 5']}}", "5s"},
		{"", "{exec: {command: [bash, -c, 'for i in {1..4}; do sleep 1; done']}}", "4s"},
		{"", "{exec: {command: [bash, -c, 'for ((i=0;i<3;i++)); do sleep 1; done']}}", "3s"},
		{"", "{exec: {command: [bash, -c, 'sleep 5 &>/log & sleep 2']}}", "2s"},
		{"", "{exec: {command: [/wait-shutdown]}}", "0s? may stop at 0s"},
		{"", "{exec: {command: []}}", "0s fails"},
		{"", "{exec: {}}", "0s fails"},
		{"", "{}", "0s fails"},
		{"", "{exec: {command: [sleep, '5']}, httpGet: {port: 80}}", "0s fails"},
		{"", "{tcpSocket: {port: 80}}", "0s fails"},
		{"", "{httpGet: {port: 8080, path: /shutdown}}", "0s unknown at 0s"},
		{"", "{httpGet: {port: 8080, path: /actuator/shutdown}}", "0s fails"},
		{"", "{httpGet: {port: 8080, path: /prestop}}", "0s?"},
		{"", "{httpGet: {port: admin, path: /shutdown}}", "0s fails"},
		{"", "{httpGet: {port: 8080, path: /shutdown, host: localhost}}", "0s fails"},
		{"", "{httpGet: {port: 80, path: /shutdown, host: balancer.example.com}}", "0s?"},
		{nginx, "{exec: {command: [/usr/sbin/nginx, -s, quit]}}", "0s finishes at 0s"},
		{nginx, "{exec: {command: [sh, -c, 'kill -QUIT 1']}}", "0s finishes at 0s"},
		{nginx, "{exec: {command: [sh, -c, 'sleep 5; kill -TERM 1']}}", "5s exits at 5s"},
		{static, "{exec: {command: [sleep, '5']}}", "0s fails"},
		{static, "{exec: {command: [/bin/sh, -c, 'sleep 5']}}", "0s fails"},
		{static, "{exec: {command: [/app, drain]}}", "0s? may stop at 0s"},
		{"image: gcr.io/distroless/base:debug, ", "{exec: {command: [sleep, '5']}}", "5s"},
		{"image: registry.k8s.io/sig-storage/csi-attacher:v4, ", "{exec: {command: [sh, -c, rm /x]}}", "0s fails"},
		{"image: mcr.microsoft.com/dotnet/aspnet:8.0-jammy-chiseled, ", "{exec: {command: [sleep, '5']}}", "0s fails"},
		{"image: fluent/fluent-bit:3.1, ", "{exec: {command: [sleep, '5']}}", "0s fails"},
		{nginx, "{exec: {command: [sh, -c, 'nginx -s quit; while killall -0 nginx; do sleep 1; done']}}",
			"0s finishes at 0s fails"},
		{"image: nginx:1.27-alpine, ",
			"{exec: {command: [sh, -c, 'nginx -s quit; while killall -0 nginx; do sleep 1; done']}}",
			"0s? finishes at 0s"},
		{"image: python:3.13-slim, ", "{exec: {command: [curl, localhost/drain]}}", "0s fails"},
		{"image: example.com/python:slim, ", "{exec: {command: [curl, localhost/prestop]}}", "0s?"},
		{alpine, "{exec: {command: [bash, -c, 'sleep 5']}}", "0s fails"},
		{alpine, "{exec: {command: [sh, -c, 'sleep 5']}}", "5s"},
		{"image: busybox:1, command: [httpd, -f], ", "{exec: {command: [kill, '1']}}", "0s unknown at 0s"},
		{"image: dunglas/frankenphp:1, ", "{exec: {command: [sh, -c, 'sleep 1; kill -QUIT 1']}}", "1s exits at 1s"},
		{"command: [python, -m, http.server], ", "{exec: {command: [sh, -c, 'kill 1; sleep 5']}}", "5s"},
		{"command: [tini, --, python, -m, http.server], ", "{exec: {command: [kill, '1']}}", "0s exits at 0s"},
		{"args: [sleep, infinity], ", "{exec: {command: [kill, '1']}}", "0s unknown at 0s"},
		{"command: [sh, -c, node app.js], ", "{exec: {command: [sh, -c, 'kill 1; sleep 5']}}", "5s"},
		{"env: [{name: TIME, value: '8'}], ", "{exec: {command: [sh, -c, 'sleep $TIME']}}", "8s"},
		{"env: [{name: A, value: '8'}, {name: B, value: $(A)m}], ", "{exec: {command: [sh, -c, 'sleep $B']}}", "8m0s"},
		{"env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: B, value: $(A)}], ",
			"{exec: {command: [sh, -c, 'sleep $B']}}", "0s?"},
		{"envFrom: [{configMapRef: {name: x}}], ", "{exec: {command: [sh, -c, 'sleep ${N:-8}']}}", "0s?"},
	} {
		if got := text(hookOf(t, tt.container, tt.hook)); got != tt.want {
			t.Errorf("%s%s: %s, want %s", tt.container, tt.hook, got, tt.want)
		}
	}
}

// TestKillInSharedNamespace: PID 1 is the pause process, which exits at SIGTERM (Kubernetes, build/pause/linux/pause.c).
func TestKillInSharedNamespace(t *testing.T) {
	shared := true
	for signal, want := range map[string]string{"TERM": "5s? may stop at 0s", "HUP": "5s"} {
		c := corev1.Container{Name: "web", Image: "web", Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "kill -" + signal + " 1; sleep 5"}}}}}
		spec := &corev1.PodSpec{ShareProcessNamespace: &shared, Containers: []corev1.Container{c}}
		if got := text(pod.ReadHook(spec, &c)); got != want {
			t.Errorf("kill -%s 1: %s, want %s", signal, got, want)
		}
	}
}
