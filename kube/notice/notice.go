package notice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Notice is what a cloud has announced. The zero value is none.
type Notice struct {
	Kind string    // such as aws-spot; see the kinds of each cloud
	At   time.Time // when the machine ends; zero: it is not announced
}

// Limits of the requests.
const (
	timeout    = 10 * time.Second
	maxAnswer  = 64 << 10 // bytes
	maxPause   = time.Minute
	warnPause  = 10 * time.Minute // between two warnings about a service that does not answer
	firstPause = time.Second
)

// Clouds are the values of Service.Cloud.
var Clouds = []string{"aws", "gcp", "azure"}

// Service is a cloud's metadata service.
type Service struct {
	Cloud  string            // one of Clouds
	Base   string            // its URL; empty: http://169.254.169.254
	Client http.RoundTripper // reaches it; a service is reachable from the machine's own network
	Log    *slog.Logger

	token  string    // of AWS
	waited bool      // GCP has answered once: the next request waits for a change
	tag    string    // of GCP's last answer
	at     time.Time // when GCP ends the machine; zero: not announced
	name   string    // of this machine, in Azure
}

// cloud is how to ask one.
type cloud struct {
	pause time.Duration // between two requests
	ask   func(*Service, context.Context) (Notice, error)
}

var clouds = map[string]cloud{
	"aws":   {5 * time.Second, (*Service).askAWS},
	"gcp":   {time.Second, (*Service).askGCP}, // its requests wait
	"azure": {5 * time.Second, (*Service).askAzure},
}

// address is that of all three clouds' services: a name would have to be resolved as the machine does.
const address = "http://169.254.169.254"

// Follow calls changed with each new notice, and with the zero value when one is withdrawn, until ctx ends. It returns an
// error only for an unknown cloud.
func (s *Service) Follow(ctx context.Context, changed func(Notice)) error {
	c, ok := clouds[s.Cloud]
	if !ok {
		return fmt.Errorf("cloud %q: must be one of %s", s.Cloud, strings.Join(Clouds, ", "))
	}
	if s.Base == "" {
		s.Base = address
	}
	var last Notice
	var warned time.Time
	for pause := firstPause; ; {
		now, err := c.ask(s, ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if pause = min(2*pause, maxPause); time.Since(warned) > warnPause {
				warned = time.Now()
				s.Log.Warn("cannot read the notices of the cloud", "cloud", s.Cloud, "error", err)
			}
		default:
			pause = c.pause
			if !now.isSame(last) {
				last = now
				changed(now)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// isSame reports whether nothing has changed. A moment that has passed may vary.
func (n Notice) isSame(as Notice) bool {
	now := time.Now()
	return n.Kind == as.Kind && (n.At.Sub(as.At).Abs() < time.Second || !n.At.IsZero() && !n.At.After(now) && !as.At.After(now))
}

// errNone is an answer 404: there is nothing.
var errNone = errors.New("404 Not Found")

// errToken is an answer 401: the token has expired.
var errToken = errors.New("401 Unauthorized")

// send makes one request, and returns the answer's body and its ETag.
func (s *Service) send(ctx context.Context, within time.Duration, method, path string, header ...string) (body, tag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.Base+path, nil)
	if err != nil {
		return "", "", err
	}
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	// A RoundTripper follows no redirection and knows no proxy.
	response, err := s.Client.RoundTrip(request)
	if err != nil {
		return "", "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return "", "", fmt.Errorf("%s %s: %w", method, path, err)
	case response.StatusCode == http.StatusNotFound:
		return "", "", errNone
	case response.StatusCode == http.StatusUnauthorized:
		return "", "", errToken
	case response.StatusCode != http.StatusOK:
		return "", "", fmt.Errorf("%s %s: %s", method, path, response.Status)
	case len(text) > maxAnswer:
		return "", "", fmt.Errorf("%s %s: the answer is longer than %d bytes", method, path, maxAnswer)
	}
	return string(text), response.Header.Get("ETag"), nil
}
