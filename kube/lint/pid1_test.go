package lint_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

func idsOf(t *testing.T, text string) string {
	t.Helper()
	var ids []string
	for _, f := range lint.Examine([]*manifest.File{manifest.Parse("a.yaml", []byte(text))}, lint.Options{}).Findings {
		ids = append(ids, f.ID)
	}
	return strings.Join(ids, " ")
}

// TestFront: which commands leave the app without SIGTERM, as measured with dash 0.5.12, bash 5.2, busybox 1.35, tini
// 0.19, dumb-init 1.2.5, npm 6 to 11, yarn 1 and pnpm 10, each as PID 1 of a namespace. Without a namespace of the
// container's own, containerd kills the rest when the first process ends (runc's shim: ShouldKillAllOnExit).
func TestFront(t *testing.T) {
	for command, want := range map[string]string{
		`command: ["/bin/sh", "-c"], args: ["npm start"]`:                 "LC029",
		`command: [sh, -c, "node server.js"]`:                             "LC029",
		`command: [sh, -c, "exec node server.js"]`:                        "",
		`command: [sh, -c, "migrate && exec node server.js"]`:             "",
		`command: [sh, -c, "migrate; node server.js"]`:                    "LC029",
		`command: [sh, -c, "trap 'kill %1' TERM; node server.js & wait"]`: "",
		`command: [bash, -c, "node server.js"]`:                           "",
		`command: [bash, -c, "migrate && node server.js"]`:                "",
		`command: [bash, -c, "node server.js | tee log"]`:                 "LC029",
		`command: [bash, -c, "yarn start"]`:                               "LC029",
		`args: [npm, run, start]`:                                         "LC029",
		`command: [tini, --, npm, start]`:                                 "LC029",
		`command: [tini, --, sh, -c, "node server.js"]`:                   "LC029",
		`command: [tini, --, node, server.js]`:                            "",
		`command: [node, server.js]`:                                      "",
		`command: [sh, /start.sh]`:                                        "",
		`command: [sh, -c, "sleep infinity"]`:                             "",
		`command: [sh, -c, "node server.js"], lifecycle: {preStop: {exec: {command: [sh, -c, "sleep 5; pkill node"]}}}`: "",
		``: "",
	} {
		if got := idsOf(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: a, ports: [{containerPort: 80}]"+comma(command)+"}]}\n"); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	for signal, want := range map[string]string{"SIGTERM": "does not pass SIGTERM on", "SIGQUIT": "does not pass SIGQUIT on", "SIGKILL": ""} {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {os: {name: linux}, containers: [{name: a, image: a, command: [sh, -c, node a.js], lifecycle: {stopSignal: " + signal + "}}]}\n"
		found := lint.Examine([]*manifest.File{manifest.Parse("a.yaml", []byte(text))}, lint.Options{}).Findings
		if got := fmt.Sprint(found); (want == "") != (len(found) == 0) || !strings.Contains(got, want) {
			t.Errorf("stopSignal %s: %s, want %q", signal, got, want)
		}
	}
	const shared = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {shareProcessNamespace: true, containers: [{name: a, image: a, command: [sh, -c, node a.js]}]}\n"
	if got := idsOf(t, shared); got != "LC029" {
		t.Errorf("with a shared process namespace: %q", got)
	}
}

func comma(text string) string {
	if text == "" {
		return ""
	}
	return ", " + text
}

// TestWordsOfNames: whole words decide which Service is one for users' requests.
func TestWordsOfNames(t *testing.T) {
	for name, want := range map[string]string{
		"delivery": "LC019", "profile": "LC019", "promotions": "LC019", "already": "LC019", "administration": "LC019",
		"metrics": "", "web-metrics": "", "readiness": "", "admin": "", "healthz": "",
	} {
		if got := idsOf(t, deployment(name, "", "web")+serviceOf(name, "http")); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestWithoutLastcall: findings about a pod without lastcall do not speak of it.
func TestWithoutLastcall(t *testing.T) {
	pod := func(labels, config string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {" + labels + "}, annotations: {proxy.istio.io/config: '" + config + "', sidecar.istio.io/nativeSidecar: \"false\"}}\n" +
			"spec: {containers: [{name: a, image: a, ports: [{containerPort: 80}]}]}\n"
	}
	for _, config := range []string{
		`{"proxyMetadata":{"MINIMUM_DRAIN_DURATION":"29s"}}`,
		`{"proxyMetadata":{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS":"true","MINIMUM_DRAIN_DURATION":"40s"}}`,
		`{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS":"true"}`, `{"proxyMetadata":{"terminationDrainDuration":"5s"}}`,
	} {
		for _, f := range lint.Examine([]*manifest.File{manifest.Parse("a.yaml", []byte(pod("", config)))}, lint.Options{}).Findings {
			if (f.ID == "LC002" || f.ID == "LC007") && (strings.Contains(f.Text, "lastcall") || strings.Contains(f.Text, "last call")) {
				t.Errorf("%s: %s", config, f.Text)
			}
		}
	}
	if got := idsOf(t, pod(`lastcall.dev/inject: "true"`, `{"proxyMetadata":{"MINIMUM_DRAIN_DURATION":"29s"}}`)); got != "LC002" {
		t.Errorf("with lastcall: %q", got)
	}
}
