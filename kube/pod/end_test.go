package pod

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestEnd: what the status of a pod says of its end. The kubelet deletes a pod that has ended once more, with a grace
// period of 0.
func TestEnd(t *testing.T) {
	accepted := time.Unix(1e9, 0)
	ended := func(code int32, reason string, after time.Duration) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, FinishedAt: metav1.NewTime(accepted.Add(after)),
		}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for _, tt := range []struct {
		name    string
		deleted *int64 // the grace period of the last deletion, s
		app     corev1.ContainerState
		grace   time.Duration
		killed  []string
		end     string
	}{
		{"not deleted", nil, running, 20 * time.Second, nil, ""},
		{"with its own grace period", ptr.To[int64](20), running, 20 * time.Second, nil, ""},
		{"with a shorter one", ptr.To[int64](8), ended(0, "Completed", 2*time.Second), 8 * time.Second, nil, "exit 0"},
		{"by force", ptr.To[int64](0), running, 0, nil, ""},
		{"by the kubelet, after its end", ptr.To[int64](0), ended(137, "Error", 20*time.Second), 20 * time.Second,
			[]string{"app"}, "SIGKILL"},
		{"without memory", ptr.To[int64](20), ended(137, "OOMKilled", time.Second), 20 * time.Second, nil, "OOMKilled"},
		{"killed before", ptr.To[int64](20), ended(137, "Error", -time.Minute), 20 * time.Second, nil, "SIGKILL"},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](20)}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: tt.app}}
		want := time.Time{}
		if tt.deleted != nil {
			p.DeletionGracePeriodSeconds, want = tt.deleted, accepted
			p.DeletionTimestamp = ptr.To(metav1.NewTime(accepted.Add(Seconds(*tt.deleted))))
		}
		end := ""
		if e := EndOf(&p.Status.ContainerStatuses[0]); e != nil {
			end = e.String()
		}
		at, grace := Deletion(p)
		if killed := Killed(p, accepted.Add(time.Second/2)); !at.Equal(want) || grace != tt.grace ||
			!slices.Equal(killed, tt.killed) || end != tt.end {
			t.Errorf("%s: %v, %v, killed %v, %q", tt.name, at, grace, killed, end)
		}
	}
}
