package ephemeral

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// Limits of the observation of one pod.
const (
	startTimeout = 2 * time.Minute        // from the ephemeral container to its first line; its image must be pulled
	endTimeout   = 10 * time.Second       // from the observer's last line to the pod's last status
	retryAfter   = 500 * time.Millisecond // when a log breaks off while its container runs
	maxLog       = 4 << 20                // bytes of a log
	maxLine      = 256 << 10              // bytes of a line in it
)

// observed is one pod with its observer.
type observed struct {
	*run
	pod       *corev1.Pod
	container string
	last      *observe.Termination // that the observer has written
	other     string               // its last line that is no JSON of the observer: an error message
}

// start adds the observer and waits until it watches.
func (p *observed) start(ctx context.Context) (err error) {
	if why := unsuitable(p.pod); why != "" {
		return errors.New(why)
	}
	if p.container, err = add(ctx, p.clients, p.workload, p.Options, p.pod); err != nil {
		return err
	}
	late := fmt.Errorf("its observer has not started within %v", startTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, late)
	defer cancel()
	for {
		now := p.seen.await(ctx, p.pod, func(pod *corev1.Pod) bool {
			s := statusOf(pod, p.container)
			return s != nil && (s.State.Running != nil || s.State.Terminated != nil || trouble(s) != "")
		})
		status := statusOf(now.pod, p.container)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case now.isGone:
			return errors.New("the pod ended before its observer started")
		case trouble(status) != "":
			return fmt.Errorf("its observer does not start: %s", trouble(status))
		}
		watching, err := p.read(ctx, true)
		switch {
		case watching:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case p.other != "":
			return fmt.Errorf("its observer failed: %s", p.other)
		case status.State.Terminated != nil:
			return fmt.Errorf("its observer ended with code %d and no message", status.State.Terminated.ExitCode)
		}
		if !pause(ctx, retryAfter) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// end waits for the pod's termination and returns it; nil when ctx has ended before, or the observer by its own limit.
func (p *observed) end(ctx context.Context) *advice.Termination {
	for ctx.Err() == nil {
		_, _ = p.read(ctx, false)
		now := p.seen.of(p.pod)
		s := statusOf(now.pod, p.container)
		if now.isGone || s != nil && s.State.Terminated != nil || !pause(ctx, retryAfter) {
			break
		}
	}
	if ctx.Err() != nil && p.last == nil {
		return nil
	}
	// What became of the containers is in the pod's last status.
	limited, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	hasEnded := func(now *corev1.Pod) bool { return now.DeletionTimestamp != nil && pod.HasEnded(now) }
	now := p.seen.await(limited, p.pod, hasEnded)
	if p.last == nil && !now.isGone && now.pod.DeletionTimestamp == nil {
		return nil
	}
	return p.report(now.pod)
}

// report joins the observer's output with the pod's last status.
func (p *observed) report(now *corev1.Pod) *advice.Termination {
	t := &advice.Termination{
		Namespace: now.Namespace, Pod: now.Name, Workload: p.workload.String(), Proxy: pod.CarrierOf(p.pod),
	}
	deleted, grace := pod.Deletion(now)
	if p.last == nil {
		t.Unknown = []string{"end"}
		if p.other != "" {
			t.Unknown = []string{p.other}
		}
		t.Began = deleted
	} else {
		t.Traffic, t.Began, t.Seconds = *p.last, p.last.Begin, time.Duration(p.last.Duration).Seconds()
	}
	if !deleted.IsZero() && !t.Began.IsZero() {
		t.Deadline = t.Began.Add(grace)
	}
	t.Conclude(pod.Killed(now, t.Began))
	return t
}

// line is the observer's first line.
type line struct {
	Observing *struct {
		Ports []uint16 `json:"ports"`
	} `json:"observing"`
	Begin time.Time `json:"begin"`
}

// read reads the observer's log from its beginning to its end; with first, to its first line, which reports that it
// watches.
func (p *observed) read(ctx context.Context, first bool) (watching bool, err error) {
	most := int64(maxLog)
	options := &corev1.PodLogOptions{Container: p.container, Follow: true, LimitBytes: &most}
	log, err := p.clients.Core.Pods(p.pod.Namespace).GetLogs(p.pod.Name, options).Stream(ctx)
	if err != nil {
		return false, p.workload.Explain(err, "read the log of the observer in "+p.pod.Name+", a pod of", "get on pods/log")
	}
	defer func() { _ = log.Close() }()
	lines := bufio.NewScanner(io.LimitReader(log, maxLog))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var l line
		text := lines.Bytes()
		switch json.Unmarshal(text, &l); {
		case l.Observing != nil:
			watching = true
			if first {
				p.Report.Note("%s: observed%s", p.pod.Name, portsText(l.Observing.Ports))
				return true, nil
			}
		case !l.Begin.IsZero():
			last := new(observe.Termination)
			if err := json.Unmarshal(text, last); err != nil {
				return watching, fmt.Errorf("line of the observer in %s: %w", p.pod.Name, err)
			}
			p.last = last
		default:
			if s := strings.TrimSpace(lines.Text()); s != "" {
				p.other = s
			}
		}
	}
	return watching, lines.Err()
}

func portsText(ports []uint16) string {
	if len(ports) == 0 {
		return ", listens on no port yet"
	}
	return ", ports " + strings.Trim(fmt.Sprint(ports), "[]")
}

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
		return "", w.Explain(err, "add an ephemeral container to "+p.Name+", a pod of",
			"patch on pods/ephemeralcontainers")
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

// pause waits, and reports false when ctx ended before.
func pause(ctx context.Context, d time.Duration) bool { return poll.Pause(ctx, d) == nil }
