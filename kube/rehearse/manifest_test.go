//go:build linux

package rehearse

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
        args: [--listen, ":$(PORT)", --name, $(POD)]
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
	if p.Workload != "Deployment shop/web" || p.Container != "web" || p.Grace != 45*time.Second || p.Port != 8080 ||
		p.StopSignal != syscall.SIGQUIT || p.ReadyPath != "/healthz" || p.PreStop.String() != "preStop exec sleep 5" ||
		strings.Join(p.Env, " ") != "PORT={port} URL=http://localhost:{port}/" || strings.Join(p.Args, " ") != "--listen :{port} --name $(POD)" {
		t.Errorf("got %+v", p)
	}
	if got := strings.Join(p.Notes, "; "); got != "variable POD comes from elsewhere and is not set; container log is not started" {
		t.Errorf("notes: %s", got)
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
