package manifest

import (
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
)

// workloads are the kinds that have a pod in them, and where.
var workloads = []struct {
	kind   string
	groups []string
	path   []string // of the pod's template; nothing when the object is the pod
}{
	{"Pod", []string{""}, nil},
	{"Deployment", []string{"apps", "extensions"}, []string{"spec", "template"}},
	{"StatefulSet", []string{"apps"}, []string{"spec", "template"}},
	{"DaemonSet", []string{"apps", "extensions"}, []string{"spec", "template"}},
	{"ReplicaSet", []string{"apps", "extensions"}, []string{"spec", "template"}},
	{"ReplicationController", []string{""}, []string{"spec", "template"}},
	{"Job", []string{"batch"}, []string{"spec", "template"}},
	{"CronJob", []string{"batch"}, []string{"spec", "jobTemplate", "spec", "template"}},
	{"PodTemplate", []string{""}, []string{"template"}},
	{"DeploymentConfig", []string{"apps.openshift.io"}, []string{"spec", "template"}},
	{"Rollout", []string{"argoproj.io"}, []string{"spec", "template"}},
	{"Service", []string{"serving.knative.dev"}, []string{"spec", "template"}},
	{"Configuration", []string{"serving.knative.dev"}, []string{"spec", "template"}},
	{"Revision", []string{"serving.knative.dev"}, []string{}},
}

// Workload is an object with a pod in it.
type Workload struct {
	Kind      string
	Group     string // of the API
	Namespace string
	Name      string

	// Pod is the one that it makes, with the template's metadata.
	Pod *corev1.Pod

	// Path is where the pod's metadata and spec stand in the object.
	Path []string
}

// IsKnative reports whether Knative makes the pods, adds its queue-proxy and sets their grace period.
func (w *Workload) IsKnative() bool { return w.Group == "serving.knative.dev" }

// IsJob reports whether the workload's pods are expected to end by themselves.
func (w *Workload) IsJob() bool { return w.Kind == "Job" || w.Kind == "CronJob" }

func (w *Workload) String() string {
	if w.Namespace == "" {
		return w.Kind + " " + w.Name
	}
	return w.Kind + " " + w.Namespace + "/" + w.Name
}

// ReadWorkload reads an object as JSON. As in the API server, field names are case-sensitive. It
// returns nil for an object that contains no pod.
func ReadWorkload(object []byte) (*Workload, error) {
	o, _, err := readObject(object)
	if o == nil {
		return nil, err
	}
	return o.Workload()
}

// Workload is the object with its pod, nil for an object that contains none.
func (o *Object) Workload() (*Workload, error) {
	for _, known := range workloads {
		if known.kind == o.Kind && slices.Contains(known.groups, o.Group()) {
			w := &Workload{Kind: o.Kind, Group: o.Group(), Namespace: o.Namespace, Name: o.Name, Path: known.path}
			return w, w.readPod(o.JSON)
		}
	}
	return nil, nil
}

func (w *Workload) readPod(object []byte) error {
	for _, key := range w.Path {
		var fields map[string]stdjson.RawMessage
		if err := json.UnmarshalCaseSensitivePreserveInts(object, &fields); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(w.Path, "."), err)
		}
		object = fields[key]
		if object == nil {
			object = []byte("{}")
		}
	}
	var t struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              corev1.PodSpec `json:"spec"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(object, &t); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(append(slices.Clone(w.Path), "…"), "."), err)
	}
	w.Pod = &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	return nil
}
