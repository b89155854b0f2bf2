package main

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// understood fails the test when a command line of an example is none of ours.
func understood(t *testing.T, line []string) {
	t.Helper()
	if len(line) == 0 || filepath.Base(line[0]) != "lastcall" {
		t.Fatalf("%q does not call lastcall", line)
	}
	cmd, rest, err := command().Find(line[1:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: %v", strings.Join(line, " "), err)
	}
}

func seconds(t *testing.T, s string) time.Duration {
	t.Helper()
	if !strings.HasSuffix(s, "s") {
		s += "s"
	}
	d, err := time.ParseDuration(s)
	must.Do(t, err)
	return d
}

func TestComposeExample(t *testing.T) {
	b, err := os.ReadFile("../../deploy/compose/docker-compose.yaml")
	must.Do(t, err)
	var file struct {
		Services map[string]struct {
			Image, Restart      string
			Entrypoint, Command []string
			Environment         map[string]string
			StopGracePeriod     string `json:"stop_grace_period"`
			StopSignal          string `json:"stop_signal"`
			Ports               []string
			Healthcheck         struct {
				Test              []string
				Interval, Timeout string
				Retries           int
				StartPeriod       string `json:"start_period"`
			}
		}
	}
	must.Do(t, yaml.UnmarshalStrict(b, &file))
	web := file.Services["web"]
	understood(t, append(web.Entrypoint, web.Command...))
	if web.Healthcheck.Test[0] != "CMD" {
		t.Errorf("the health check is %q, want CMD: the image may have no shell", web.Healthcheck.Test)
	}
	understood(t, web.Healthcheck.Test[1:])
	if stop, grace := seconds(t, web.StopGracePeriod), seconds(t, web.Environment["TERMINATION_GRACE_PERIOD_SECONDS"]); stop < grace {
		t.Errorf("SIGKILL comes after %v, lastcall takes up to %v", stop, grace)
	}
}

func TestSystemdUnit(t *testing.T) {
	b, err := os.ReadFile("../../deploy/systemd/lastcall.service")
	must.Do(t, err)
	unit := strings.ReplaceAll(string(b), "\\\n", "")
	value := func(name string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(unit)
		if found == nil {
			t.Fatalf("the unit has no %s", name)
		}
		return found[1]
	}
	understood(t, strings.Fields(value("ExecStart")))
	if stop, grace := seconds(t, value("TimeoutStopSec")), seconds(t, value("Environment=TERMINATION_GRACE_PERIOD_SECONDS")); stop <= grace {
		t.Errorf("SIGKILL comes after %v, lastcall takes up to %v", stop, grace)
	}

	t.Run("as systemd reads it", func(t *testing.T) {
		analyze, err := exec.LookPath("systemd-analyze")
		switch {
		case err != nil && peers.InCI():
			t.Fatal(err)
		case err != nil:
			t.Skipf("%v: it comes with the package systemd", err)
		}
		file := filepath.Join(t.TempDir(), "lastcall.service")
		text := regexp.MustCompile(`/usr/local/bin/[a-z-]+`).ReplaceAllString(string(b), "/bin/true")
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
		if out, err := exec.Command(analyze, "verify", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	})
}

// gatewayPod has the parts that the files of deploy/gateways add to a pod, from wherever it is in the file.
type gatewayPod struct {
	Grace          int `json:"terminationGracePeriodSeconds"`
	InitContainers []gatewayContainer
	Containers     []gatewayContainer
	Volumes        []struct{ Name string }
}

type gatewayContainer struct {
	Patch string `json:"$patch"`
	Args  []string
	Env   []struct{ Name, Value string }

	VolumeMounts []struct{ Name, MountPath string }
	Lifecycle    struct {
		PreStop struct {
			Exec struct{ Command []string }
		}
	}
}

// gatewayPodOf reads a patch of a Deployment, an EnvoyProxy, a ConfigMap with a patch, or values of Istio's gateway
// chart.
func gatewayPodOf(t *testing.T, text []byte) gatewayPod {
	t.Helper()
	type workload struct {
		Spec struct{ Template struct{ Spec gatewayPod } }
	}
	var file struct {
		workload `json:",inline"`
		Data     struct{ Deployment string }
		Proxy    struct {
			Provider struct {
				Kubernetes struct {
					EnvoyDeployment struct{ Patch struct{ Value workload } }
				}
			}
		} `json:"spec"`
	}
	var values struct {
		gatewayPod       `json:",inline"`
		gatewayContainer `json:",inline"`
		Env              map[string]string
	}
	var patch workload
	must.Do(t, yaml.Unmarshal(text, &file))
	switch {
	case file.Data.Deployment != "":
		text = []byte(file.Data.Deployment)
		fallthrough
	default:
		must.Do(t, yaml.Unmarshal(text, &patch))
		if len(patch.Spec.Template.Spec.Containers) > 0 {
			return patch.Spec.Template.Spec
		}
	}
	if pod := file.Proxy.Provider.Kubernetes.EnvoyDeployment.Patch.Value.Spec.Template.Spec; len(pod.Containers) > 0 {
		return pod
	}
	must.Do(t, yaml.Unmarshal(text, &values))
	pod, c := values.gatewayPod, values.gatewayContainer
	for name, value := range values.Env {
		c.Env = append(c.Env, struct{ Name, Value string }{name, value})
	}
	pod.Containers = append(pod.Containers, c)
	return pod
}

// TestGatewayFiles holds the files of deploy/gateways to the command line, and their parts to each other.
func TestGatewayFiles(t *testing.T) {
	files, err := filepath.Glob("../../deploy/gateways/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			must.Do(t, err)
			pod := gatewayPodOf(t, text)
			if len(pod.InitContainers) != 1 || len(pod.Volumes) != 1 || len(pod.Containers) == 0 {
				t.Fatalf("the pod is %+v", pod)
			}
			copies, envoy, volume := pod.InitContainers[0], pod.Containers[0], pod.Volumes[0].Name
			understood(t, append([]string{"lastcall"}, copies.Args...))
			hook := envoy.Lifecycle.PreStop.Exec.Command
			understood(t, hook)
			mounted := func(c gatewayContainer, folder string) bool {
				return len(c.VolumeMounts) == 1 && c.VolumeMounts[0].Name == volume && c.VolumeMounts[0].MountPath == folder
			}
			if from := copies.Args[len(copies.Args)-1]; !mounted(copies, path.Dir(from)) || !mounted(envoy, path.Dir(hook[0])) || path.Base(from) != path.Base(hook[0]) {
				t.Errorf("the hook %s is not what %s copies", hook[0], from)
			}
			if len(envoy.Env) != 1 || envoy.Env[0].Name != "TERMINATION_GRACE_PERIOD_SECONDS" || envoy.Env[0].Value != strconv.Itoa(pod.Grace) {
				t.Errorf("the hook's grace period is %v, the pod's %d", envoy.Env, pod.Grace)
			}
			for _, c := range pod.Containers[1:] {
				if c.Patch != "delete" {
					t.Errorf("container %+v stays", c)
				}
			}
			const page = "envoy.md"
			if described, err := os.ReadFile(filepath.Join("../../docs", page)); err != nil || !strings.Contains(string(described), "../deploy/gateways/"+filepath.Base(file)) {
				t.Errorf("docs/%s does not name it (%v)", page, err)
			}
		})
	}
}
