//go:build linux

package rehearse

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    spec:
      terminationGracePeriodSeconds: 45
      containers:
      - name: log
        image: log
      - name: web
        image: web
        ports: [{containerPort: 8080}]
        env: [{name: PORT, value: "8080"}, {name: URL, value: "http://localhost:$(PORT)/"}, {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        lifecycle:
          stopSignal: SIGQUIT
          preStop: {exec: {command: [sleep, "5"]}}
        readinessProbe: {httpGet: {path: /healthz, port: 8080}}
`

func TestManifest(t *testing.T) {
	p, err := Manifest("-", strings.NewReader(deployment), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if p.Workload != "Deployment shop/web" || p.Grace != 45*time.Second || p.Port != 8080 ||
		p.StopSignal != syscall.SIGQUIT || p.ReadyPath != "/healthz" || p.Hook.String() != "preStop exec sleep 5" ||
		strings.Join(p.Env, " ") != "PORT={port} URL=http://localhost:{port}/" {
		t.Errorf("got %+v", p)
	}
	if got := strings.Join(p.Notes, "; "); got != "variables that are not set, because the input has no value for them: POD; container log is not started" {
		t.Errorf("notes: %s", got)
	}
}

// TestJoinedHook: a rehearsal of lastcall has the hook that injection gives the pod.
func TestJoinedHook(t *testing.T) {
	for own, want := range map[string]strategy.Join{
		`sleep, "5"`:         {Minimum: 5 * time.Second},
		`sh, -c, "sleep 9;"`: {Minimum: 9 * time.Second},
		`nginx, -s, quit`:    {Runs: true},
	} {
		text := strings.ReplaceAll(deployment, `sleep, "5"`, own)
		if p, err := Manifest("-", strings.NewReader(text), "", ""); err != nil || p.Join != want {
			t.Errorf("%s: %+v, %v; want %+v", own, p.Join, err, want)
		} else if got := strings.Contains(strings.Join(p.Notes, "\n"), "ends the app itself, 0s after the deletion: nginx -s quit"); got != want.Runs {
			t.Errorf("%s: notes %q", own, p.Notes)
		}
		kept := strings.Replace(text, "  template:\n", "  template:\n    metadata: {annotations: {lastcall.dev/pre-stop: keep}}\n", 1)
		if p, err := Manifest("-", strings.NewReader(kept), "", ""); err != nil || p.Join != (strategy.Join{Keeps: true}) {
			t.Errorf("%s, kept: %+v, %v", own, p.Join, err)
		}
	}
}

// TestStopSignalOfImage: a known image's stop signal is the rehearsal's.
func TestStopSignalOfImage(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: IMAGE}]}\n"
	for image, want := range map[string]syscall.Signal{"nginx": syscall.SIGQUIT, "httpd": syscall.SIGWINCH, "web": 0} {
		p, err := Manifest("-", strings.NewReader(strings.Replace(text, "IMAGE", image, 1)), "", "")
		if err != nil || p.StopSignal != want || (len(p.Notes) > 0) != (want > 0) {
			t.Errorf("%s: %v, %q, %v; want %v", image, p.StopSignal, p.Notes, err, want)
		}
	}
}

// A folder may have a chart's templates.
func TestFolder(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{"web.yaml": deployment, "chart.yaml": "a: [\n{{ .Values }}"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := Manifest(folder, nil, "", ""); err != nil || p.Workload != "Deployment shop/web" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestManifestErrors(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
	for _, tt := range []struct{ text, workload, container, want string }{
		{service, "", "", "no Pod, Deployment or other workload that serves"},
		{"{", "", "", "line 1"},
		{deployment + "---" + strings.ReplaceAll(deployment, "name: web, ", "name: api, "), "", "", "choose one by --workload: Deployment/web, Deployment/api"},
		{deployment, "api", "", "no workload api: must be one of Deployment/web"},
		{deployment, "deployment/web", "db", "no container db"},
		{strings.ReplaceAll(deployment, "SIGQUIT", "SIGHELLO"), "", "", "unknown stopSignal SIGHELLO"},
	} {
		if _, err := Manifest("-", strings.NewReader(tt.text), tt.workload, tt.container); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
	if _, err := Manifest("nowhere.yaml", nil, "", ""); err == nil || !strings.Contains(err.Error(), "-f: ") {
		t.Errorf("got %v", err)
	}
}

// TestVariablesThatGrow: the references are resolved up to a limit, and a note reports that.
func TestVariablesThatGrow(t *testing.T) {
	text, err := os.ReadFile("../manifest/testdata/doubling.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Manifest("-", bytes.NewReader(text), "", "")
	if err != nil || !slices.Contains(p.Notes, manifest.CutText) || len(strings.Join(p.Env, "")) > 256<<10 {
		t.Errorf("%d bytes of variables, notes %q, %v", len(strings.Join(p.Env, "")), p.Notes, err)
	}
}

// ConfigMaps and Secrets of the same input give their values, unexpanded, as the kubelet does; missing ones are named.
func TestVariables(t *testing.T) {
	const text = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  containers:
  - name: web
    ports: [{containerPort: 8080}]
    envFrom: [{configMapRef: {name: settings}}, {prefix: DB_, secretRef: {name: db}}, {secretRef: {name: absent}}]
    env:
    - {name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level}}}
    - {name: KEY, valueFrom: {secretKeyRef: {name: db, key: token}}}
    - {name: URL, value: "http://$(user)@db:$(PORT)"}
    - {name: GONE, valueFrom: {secretKeyRef: {name: absent, key: x}}}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {PORT: "8080", level: "$(user)", user: app}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: other}
data: {PORT: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: db, namespace: shop}
data: {token: c2VjcmV0}
stringData: {pass: word}
`
	p, err := Manifest("-", strings.NewReader(text), "", "")
	if err != nil {
		t.Fatal(err)
	}
	const want = "PORT={port} level=$(user) user=app DB_pass=word DB_token=secret LEVEL=$(user) KEY=secret URL=http://app@db:{port}"
	if got := strings.Join(p.Env, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := strings.Join(p.Missing, ", "); got != "all of Secret absent, GONE (Secret absent), POD" {
		t.Errorf("missing: %s", got)
	}
}
