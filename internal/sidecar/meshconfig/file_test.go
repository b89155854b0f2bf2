package meshconfig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func TestFiles(t *testing.T) {
	t.Run("none is no error, but a warning if another than Istio's was given", func(t *testing.T) {
		dir := t.TempDir()
		s, err := Resolve(Input{MeshFile: dir + "/mesh", AnnotationsFile: dir + "/annotations"})
		must.Do(t, err)
		want := "[mesh config file (mesh file " + dir + "/mesh): no such file; ignored" +
			" annotations file (annotations file " + dir + "/annotations): no such file; ignored]"
		if got := fmt.Sprint(s.Warnings); got != want {
			t.Errorf("warnings %s, want %s", got, want)
		}
		t.Chdir(dir)
		if s, err = Resolve(Input{MeshFile: DefaultMeshFile, AnnotationsFile: DefaultAnnotationsFile}); err != nil || len(s.Warnings) > 0 {
			t.Errorf("error %v, warnings %v", err, s.Warnings)
		}
	})
	t.Run("real ones", func(t *testing.T) {
		dir := t.TempDir()
		mesh, annotations := dir+"/mesh", dir+"/annotations"
		if err := errors.Join(
			os.WriteFile(mesh, []byte("\ufeffdefaultConfig:\r\n  drainDuration: 20s\r\n  concurency: 1\r\n"), 0o600),
			os.WriteFile(annotations, []byte("\ufeffproxy.istio.io/config=\"terminationDrainDuration: 7s\\n\"\r\n"), 0o600),
		); err != nil {
			t.Fatal(err)
		}
		s, err := Resolve(Input{MeshFile: mesh, AnnotationsFile: annotations, Env: []string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS=false"}})
		if err != nil || s.DrainDuration.Value != 20*time.Second || s.DrainDuration.Source.Line != 2 || s.TerminationDrain.Value != 7*time.Second {
			t.Errorf("drain %+v, termination %+v, error %v", s.DrainDuration, s.TerminationDrain, err)
		}
		if got, want := fmt.Sprint(s.Warnings), "[defaultConfig.concurency (mesh file "+mesh+", line 3): unknown field, has no effect: did you mean concurrency?]"; got != want {
			t.Errorf("warnings %s, want %s", got, want)
		}
	})
	t.Run("empty ones say nothing", func(t *testing.T) {
		for _, text := range []string{"", "\n", "\ufeff", "# nothing\n", "---\n", "null"} {
			s, err := Resolve(Input{MeshFile: "mesh", ReadFile: func(string) ([]byte, error) { return []byte(text), nil }})
			if err != nil || len(s.Warnings) > 0 || s.DrainDuration.IsSet() {
				t.Errorf("%q: error %v, warnings %v", text, err, s.Warnings)
			}
		}
	})
	t.Run("without permission", func(t *testing.T) {
		_, err := Resolve(Input{MeshFile: "mesh", ReadFile: func(name string) ([]byte, error) {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
		}})
		if want := "read mesh config file: open mesh: permission denied: must be a readable file, or missing"; err == nil || err.Error() != want || !errors.Is(err, fs.ErrPermission) {
			t.Errorf("error %v, want %s", err, want)
		}
	})
	t.Run("a huge one", func(t *testing.T) {
		_, err := Resolve(Input{MeshFile: "/dev/zero"})
		if err == nil || !strings.Contains(err.Error(), "read mesh config file: /dev/zero has more than 2097152 bytes") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("one that is something else altogether", func(t *testing.T) {
		var text strings.Builder
		for i := range 5_000 {
			fmt.Fprintf(&text, "field%d: %d\n", i, i)
		}
		s, err := Resolve(Input{Env: []string{"PROXY_CONFIG=" + text.String()}})
		if err != nil || len(s.Warnings) != 101 || s.Warnings[100].String() != "configuration: 4900 more warnings" {
			t.Errorf("error %v, %d warnings", err, len(s.Warnings))
		}
	})
	t.Run("unreadable ones are, both of them", func(t *testing.T) {
		dir := t.TempDir() // a directory cannot be read as a file
		_, err := Resolve(Input{MeshFile: dir, AnnotationsFile: dir})
		for _, want := range []string{"read mesh config file: read " + dir, "read annotations file: read " + dir} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q in it", err, want)
			}
		}
	})
	t.Run("as Istio mounts them", func(t *testing.T) {
		s, err := Resolve(places{mesh: `accessLogFile: /dev/stdout
defaultConfig:
  discoveryAddress: istiod.istio-system.svc:15012
  tracing:
    zipkin:
      address: zipkin.istio-system:9411
    sampling: 1.5
    custom_tags: {env: {literal: {value: prod}}}
  gatewayTopology: {numTrustedProxies: 2}
  image: {imageType: distroless}
defaultProviders: {metrics: [prometheus]}
enablePrometheusMerge: true
extensionProviders:
- name: otel
  opentelemetry: {service: otel.svc, port: 4317}
rootNamespace: istio-system
trustDomain: cluster.local
`}.input())
		if err != nil || len(s.Warnings) > 0 {
			t.Errorf("error %v, warnings %v, want none", err, s.Warnings)
		}
	})
}

func TestAnnotationsFile(t *testing.T) {
	for _, c := range []struct {
		name, text, want, err string
	}{
		{"as the kubelet writes it", "a=\"1\"\nproxy.istio.io/config=\"proxyMetadata:\\n  X: \\\"y\\\"\\n\"\n", "proxyMetadata:\n  X: \"y\"\n", ""},
		{"no newline at the end", `proxy.istio.io/config="x: y"`, "x: y", ""},
		{"an equals sign in the value", `proxy.istio.io/config="x: a=b"`, "x: a=b", ""},
		{"nothing", "", "", ""},
		{"no equals sign", "a=\"1\"\nproxy.istio.io/config\n", "", `line 2: "proxy.istio.io/config": must be key="value", as the downward API writes annotations`},
		{"no quotes", "proxy.istio.io/config=x", "", "line 1: value of proxy.istio.io/config is x: must be a string in double quotes, with Go's escapes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseAnnotations(c.text)
			if message := fmt.Sprint(err); c.err != "" && message != c.err || c.err == "" && err != nil {
				t.Errorf("error %q, want %q", message, c.err)
			}
			if got["proxy.istio.io/config"] != c.want {
				t.Errorf("got %q, want %q", got["proxy.istio.io/config"], c.want)
			}
		})
	}
}

func FuzzParseAnnotations(f *testing.F) {
	f.Add("a=\"1\"\nb=\"two\\n\"\n")
	f.Add("=\"\"")
	f.Add("a='b'")
	f.Fuzz(func(t *testing.T, text string) {
		annotations, err := parseAnnotations(text)
		if err != nil {
			return
		}
		// What was read, written as the kubelet does, is read again the same.
		var b strings.Builder
		for key, value := range annotations {
			fmt.Fprintf(&b, "%s=%s\n", key, strconv.Quote(value))
		}
		again, err := parseAnnotations(b.String())
		if err != nil {
			// A key the kubelet cannot write (it has blanks or line ends in it).
			if strings.ContainsAny(strings.Join(sortedKeys(annotations), ""), " \t\r\n\v\f\u0085\u00a0") {
				return
			}
			t.Fatalf("written again: %v", err)
		}
		if len(again) != len(annotations) {
			t.Fatalf("read %v, written and read again %v", annotations, again)
		}
	})
}
