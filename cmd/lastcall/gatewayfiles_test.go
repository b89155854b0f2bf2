package main

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// gatewayPod is what the files of deploy/gateways add to a pod, from wherever it is in the file.
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

// gatewayPodOf reads a patch of a Deployment, an EnvoyProxy, a ConfigMap with a patch, or values of Istio's gateway chart.
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
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	switch {
	case file.Data.Deployment != "":
		text = []byte(file.Data.Deployment)
		fallthrough
	default:
		if err := yaml.Unmarshal(text, &patch); err != nil {
			t.Fatal(err)
		}
		if len(patch.Spec.Template.Spec.Containers) > 0 {
			return patch.Spec.Template.Spec
		}
	}
	if pod := file.Proxy.Provider.Kubernetes.EnvoyDeployment.Patch.Value.Spec.Template.Spec; len(pod.Containers) > 0 {
		return pod
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
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
			if err != nil {
				t.Fatal(err)
			}
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
