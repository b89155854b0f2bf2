package notice

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// GCPPreemption is the kind of GCP.
const GCPPreemption = "gcp-preemption"

// preemptionTime is how long after the notice Compute Engine stops the machine: "30 seconds" (Spot VMs, preemption process).
const preemptionTime = 30 * time.Second

// longPoll is how long a request waits for a change; the service answers the last value then.
const longPoll = 60 * time.Second

// askGCP reads instance/preempted, TRUE or FALSE: Compute Engine, "About VM metadata" (wait_for_change, last_etag,
// timeout_sec, Metadata-Flavor) and "Spot VMs". The first request does not wait.
func (s *Service) askGCP(ctx context.Context) (Notice, error) {
	query, within := "", timeout
	if s.waited {
		within = longPoll + timeout
		query = "?" + url.Values{"wait_for_change": {"true"}, "timeout_sec": {"60"}, "last_etag": {s.tag}}.Encode()
	}
	body, tag, err := s.send(ctx, within, http.MethodGet, "/computeMetadata/v1/instance/preempted"+query, "Metadata-Flavor", "Google")
	if err != nil {
		s.waited = false
		return Notice{}, err
	}
	s.waited, s.tag = true, tag
	if strings.TrimSpace(body) != "TRUE" {
		s.at = time.Time{}
		return Notice{}, nil
	}
	if s.at.IsZero() {
		s.at = time.Now().Add(preemptionTime)
	}
	return Notice{Kind: GCPPreemption, At: s.at}, nil
}
