//go:build e2e

package e2e

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/kube/advice"
)

// TestDeadline has SIGKILL come before the end of the grace period of 30 s, while a client receives a stream that does not
// end: the client gets the end of its protocol in time, and no SIGKILL is needed.
func TestDeadline(t *testing.T) {
	observer(t)
	ended := func(t *testing.T, sidecar, from string, within time.Duration, end func(n *namespace, p corev1.Pod) error) {
		n := newNamespace(t, nil)
		p := n.start(app{name: "web", annotations: map[string]string{"lastcall.dev/sidecar": sidecar}})
		stream, err := http.Get(url(p, "/drip?duration=600&numbytes=6000&delay=0"))
		must.Do(t, err)
		defer func() { _ = stream.Body.Close() }()
		must.Do(t, end(n, p))
		_, err = io.Copy(io.Discard, stream.Body)
		last := time.Now()
		if !errors.Is(err, io.ErrUnexpectedEOF) { // a truncated response, which the client notices; a reset is another error
			t.Errorf("the stream ended with %v", err)
		}
		r := n.observed(p)
		n.gone(p)
		left := r.Deadline.Sub(last)
		if left < 0 || left > within/2 {
			t.Errorf("the stream ended %v before SIGKILL, want about 2 s", left)
		}
		if r.DeadlineFrom != from || r.Verdict != advice.Lost || r.Traffic.Lost.Total() != 1 || len(r.Killed) > 0 || r.Agent == nil || r.Agent.DeadlineFrom != from {
			t.Errorf("the observer's report: %+v, agent %+v", r, r.Agent)
		}
		t.Logf("the stream ended %.2f s before SIGKILL, the pod's last process after %.2f s; %s", left.Seconds(), r.Seconds, r.Summary())
	}
	remove := func(n *namespace, p corev1.Pod) error {
		n.Kubectl("delete", "pod", p.Name, "--grace-period=8", "--wait=false")
		return nil
	}
	evict := func(n *namespace, p corev1.Pod) error {
		grace := int64(8)
		return client.PolicyV1().Evictions(n.Name).Evict(n.T.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: n.Name}, DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: &grace},
		})
	}
	t.Run("shorter", func(t *testing.T) {
		for _, tt := range []struct {
			name, sidecar, from string
			end                 func(n *namespace, p corev1.Pod) error
		}{
			{"delete, native", "native", "delete", remove},
			{"delete, classic", "classic", "delete", remove},
			{"evict", "native", "eviction", evict},
		} {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				ended(t, tt.sidecar, tt.from, 8*time.Second, tt.end)
			})
		}
	})
}
