package notice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// The kinds of AWS. A rebalance recommendation is a risk, not an end: it has no moment.
const (
	AWSSpot      = "aws-spot"
	AWSRebalance = "aws-rebalance"
)

// askAWS reads spot/instance-action, and else events/recommendations/rebalance: EC2 user guide, "Spot Instance
// interruption notices" (to be read every 5 s; 404 without one; {"action": "terminate", "time": "2017-09-18T08:22:00Z"}),
// "EC2 instance rebalance recommendations" ({"noticeTime": …}), and "Use the Instance Metadata Service" (IMDSv2: PUT
// /latest/api/token, with a TTL of up to 6 h).
func (s *Service) askAWS(ctx context.Context) (Notice, error) {
	const meta = "/latest/meta-data/"
	if s.token == "" {
		token, _, err := s.send(ctx, timeout, http.MethodPut, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "21600")
		if err != nil {
			return Notice{}, err
		}
		s.token = token
	}
	body, _, err := s.send(ctx, timeout, http.MethodGet, meta+"spot/instance-action", "X-aws-ec2-metadata-token", s.token)
	if err == nil {
		var action struct {
			Action string
			Time   time.Time
		}
		if err := json.Unmarshal([]byte(body), &action); err != nil {
			return Notice{}, fmt.Errorf("read spot/instance-action: %w", err)
		}
		return Notice{Kind: AWSSpot, At: action.Time}, nil
	}
	if errors.Is(err, errNone) {
		_, _, err = s.send(ctx, timeout, http.MethodGet, meta+"events/recommendations/rebalance", "X-aws-ec2-metadata-token", s.token)
		if err == nil {
			return Notice{Kind: AWSRebalance}, nil
		}
	}
	switch {
	case errors.Is(err, errNone):
		return Notice{}, nil
	case errors.Is(err, errToken):
		s.token = ""
	}
	return Notice{}, err
}
