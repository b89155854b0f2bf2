package pod

import (
	"cmp"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cronSuffix is the part that a CronJob adds to the names of its Jobs: the minute of the run, or since 1.21 that of its
// schedule.
var cronSuffix = regexp.MustCompile(`-\d{7,}$`)

// NoWorkload is WorkloadOf a pod without a controller.
const NoWorkload = "pod"

// WorkloadOf is the kind and name by which people know a pod, in lower case as in kubectl rollout: deployment/web. A
// pod without a controller is "pod": its name would be a new series for each pod.
func WorkloadOf(m *metav1.ObjectMeta) string {
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return NoWorkload
	}
	kind, name := strings.ToLower(owner.Kind), owner.Name
	switch kind {
	case "replicaset":
		if hash := cmp.Or(m.Labels["pod-template-hash"], m.Labels["rollouts-pod-template-hash"]); hash != "" {
			if cut, ok := strings.CutSuffix(name, "-"+hash); ok {
				kind, name = "deployment", cut
				if m.Labels["rollouts-pod-template-hash"] != "" {
					kind = "rollout"
				}
			}
		}
	case "job":
		if cut := cronSuffix.ReplaceAllString(name, ""); cut != name {
			kind, name = "cronjob", cut
		}
	case "node": // the mirror of a static pod
		return NoWorkload
	}
	return kind + "/" + name
}
