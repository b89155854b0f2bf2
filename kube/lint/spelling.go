package lint

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// othersKeys are annotations of other projects that decide about a termination.
var othersKeys = []string{
	"config.linkerd.io/shutdown-grace-period", "config.alpha.linkerd.io/proxy-wait-before-exit-seconds", "config.beta.linkerd.io/proxy-enable-native-sidecar",
	"sidecar.istio.io/nativeSidecar", "kuma.io/sidecar-drain-time", "dapr.io/graceful-shutdown-seconds", "dapr.io/block-shutdown-duration",
}

// misspelt: nothing reports an unknown annotation, which is ignored.
func (l *linting) misspelt() {
	for _, name := range slices.Sorted(maps.Keys(l.Pod.Annotations)) {
		where := "metadata.annotations[" + name + "]"
		domain, _, _ := strings.Cut(name, "/")
		switch {
		case domain == "lastcall.dev" && !slices.Contains(inject.Keys(), name):
			if meant, ok := meshconfig.Nearest(name, inject.Keys()); ok {
				l.find("LC022", Warning, where, "is not an annotation of lastcall and is ignored: did you mean %s?", meant)
			} else {
				l.find("LC022", Warning, where, "is not an annotation of lastcall and is ignored")
			}
		case !slices.Contains(othersKeys, name):
			if meant, ok := meshconfig.Nearest(name, othersKeys); ok && strings.HasPrefix(meant, domain) {
				l.find("LC022", Warning, where, "is ignored: did you mean %s?", meant)
			}
		}
	}
}

// places are the fields of a termination and where they belong: the level of the object at which each is read.
var places = map[string]string{
	"terminationGracePeriodSeconds": "pod", "lifecycle": "container", "preStop": "lifecycle", "postStart": "lifecycle", "stopSignal": "lifecycle",
	"readinessProbe": "container", "progressDeadlineSeconds": "workload", "minReadySeconds": "workload", "podReplacementPolicy": "workload",
}

// levels are the structs whose fields each level has.
var levels = map[string]reflect.Type{
	"pod": reflect.TypeFor[corev1.PodSpec](), "container": reflect.TypeFor[corev1.Container](), "lifecycle": reflect.TypeFor[corev1.Lifecycle](),
	"workload": reflect.TypeFor[apps.DeploymentSpec](),
}

// misspeltFields: an API server drops unknown fields, with a warning that a pipeline rarely shows.
func misspeltFields(o *manifest.Object) []Finding {
	var top struct {
		Spec map[string]any `json:"spec"`
	}
	if o.Group() != "apps" && o.Group() != "" && o.Group() != "batch" || o.Decode(&top) != nil {
		return nil
	}
	s := speller{}
	pod, path := top.Spec, "spec"
	if o.Kind == "CronJob" {
		job, _ := pod["jobTemplate"].(map[string]any)
		pod, _ = job["spec"].(map[string]any)
		path = "spec.jobTemplate.spec"
	}
	if o.Kind != "Pod" {
		if o.Kind == "Deployment" {
			s.check("workload", path, pod)
		}
		template, _ := pod["template"].(map[string]any)
		pod, _ = template["spec"].(map[string]any)
		path += ".template.spec"
	}
	s.check("pod", path, pod)
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := pod[list].([]any)
		for i, c := range containers {
			c, _ := c.(map[string]any)
			where := fmt.Sprintf("%s.%s[%d]", path, list, i)
			s.check("container", where, c)
			lifecycle, _ := c["lifecycle"].(map[string]any)
			s.check("lifecycle", where+".lifecycle", lifecycle)
		}
	}
	return s
}

type speller []Finding

// check looks for fields of a termination in the keys of a map at a level that does not have them.
func (s *speller) check(level, path string, fields map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if hasField(levels[level], key) || places[key] == level {
			continue
		}
		where := path + "." + key
		if belongs, ok := places[key]; ok {
			*s = append(*s, Finding{ID: "LC022", Severity: Error, Path: where, Text: fmt.Sprintf("is ignored here: %s is a field of the %s", key, belongs)})
		} else if meant, ok := meshconfig.Nearest(key, slices.Sorted(maps.Keys(places))); ok {
			*s = append(*s, Finding{ID: "LC022", Severity: Error, Path: where, Text: fmt.Sprintf("is not a field and is ignored: did you mean %s?", meant)})
		}
	}
}

func hasField(t reflect.Type, name string) bool {
	for i := range t.NumField() {
		if tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); tag == name {
			return true
		}
	}
	return false
}
