package ephemeral

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// prefix begins the names of the containers.
const prefix = "lastcall-observe-"

// unprivileged is the user of the container, which the image has as well: some clusters require it in the manifest.
const unprivileged = 65532

// container is an observer for a pod. An ephemeral container has no resources, ports or probes of its own.
func container(o Options, p *corev1.Pod) corev1.EphemeralContainer {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	no, yes, user := false, true, int64(unprivileged)
	args := []string{"observe", "--pod", "--json", "--for", o.Limit.String(), "--grace", pod.GraceOf(&p.Spec).String()}
	var known observe.Options
	advice.Know(&known, &p.Spec, pod.CarrierOf(p))
	text, _ := json.Marshal(known) // plain numbers
	args = append(args, "--known", string(text))
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name:  prefix + hex.EncodeToString(random),
		Image: o.Image,
		Args:  args,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, Privileged: &no, ReadOnlyRootFilesystem: &yes,
			RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}
}

// unsuitable is why a pod cannot be observed; empty if it can.
func unsuitable(p *corev1.Pod) string {
	switch {
	case p.Spec.HostNetwork:
		return "it uses the node's network, in which the sockets of other programs are"
	case p.Spec.OS != nil && p.Spec.OS.Name != corev1.Linux:
		return "its system is " + string(p.Spec.OS.Name)
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return "static pods take no ephemeral containers"
	}
	return ""
}

// add adds an observer to a pod and returns the container's name.
func add(ctx context.Context, c workload.Clients, w *workload.Workload, o Options, p *corev1.Pod) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, workload.CallTimeout)
	defer cancel()
	one := container(o, p)
	containers := map[string]any{"ephemeralContainers": []corev1.EphemeralContainer{one}}
	patch, err := json.Marshal(map[string]any{"spec": containers})
	if err != nil {
		return "", err
	}
	_, err = c.Core.Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: "lastcallctl"}, "ephemeralcontainers")
	if err != nil {
		return "", w.Explain(err, "add an ephemeral container to "+p.Name+", a pod of", "patch on pods/ephemeralcontainers")
	}
	return one.Name, nil
}

// trouble is why a container does not start: a reason for which waiting does not help soon.
func trouble(s *corev1.ContainerStatus) string {
	switch waiting := s.State.Waiting; {
	case waiting == nil:
	case waiting.Reason == "ErrImagePull", waiting.Reason == "ImagePullBackOff", waiting.Reason == "InvalidImageName",
		waiting.Reason == "ErrImageNeverPull", waiting.Reason == "CreateContainerConfigError",
		waiting.Reason == "CreateContainerError", waiting.Reason == "RunContainerError":
		return strings.TrimSpace(waiting.Reason + ": " + waiting.Message)
	}
	return ""
}

// statusOf is the status of an ephemeral container, nil before the kubelet has written one.
func statusOf(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range p.Status.EphemeralContainerStatuses {
		if s := &p.Status.EphemeralContainerStatuses[i]; s.Name == name {
			return s
		}
	}
	return nil
}
