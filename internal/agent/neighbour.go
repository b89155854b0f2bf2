package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

// Neighbour is another vendor's sidecar next to an app that lastcall run has started, configured by scuttle's
// variables, which are often part of an image. Its zero value does nothing.
type Neighbour struct {
	Ready   string        // URL that returns 200 when the sidecar serves; empty: do not wait
	Timeout time.Duration // for Ready; 0: none
	Quit    []string      // URLs to POST to when the app has exited
	Always  bool          // also if the app failed
}

// ParseNeighbour reads scuttle's variables:
//
//	ENVOY_ADMIN_API              http://127.0.0.1:15000: wait for its /ready before the app is started
//	START_WITHOUT_ENVOY          true: do not wait
//	LINKERD_AWAIT_DISABLED       any value: do not wait (linkerd-await's)
//	WAIT_FOR_ENVOY_TIMEOUT       Go duration: limit of the wait
//	ISTIO_QUIT_API               http://127.0.0.1:15020: POST /quitquitquit when the app has exited
//	GENERIC_QUIT_ENDPOINTS       more URLs to POST to, separated by commas
//	NEVER_KILL_ISTIO             true: do not POST
//	NEVER_KILL_ISTIO_ON_FAILURE  true: do not POST if the app failed
func ParseNeighbour(get func(string) string) (n Neighbour, err error) {
	is := func(name string) bool {
		text := get(name)
		if text == "" {
			return false
		}
		yes, e := strconv.ParseBool(text)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s is %q: must be true or false", name, text))
		}
		return yes
	}
	if admin := get("ENVOY_ADMIN_API"); admin != "" && !is("START_WITHOUT_ENVOY") && get("LINKERD_AWAIT_DISABLED") == "" {
		n.Ready = strings.TrimSuffix(admin, "/") + "/ready"
	}
	if text := get("WAIT_FOR_ENVOY_TIMEOUT"); text != "" {
		var e error
		if n.Timeout, e = time.ParseDuration(text); e != nil || n.Timeout < 0 {
			err = errors.Join(err, fmt.Errorf("WAIT_FOR_ENVOY_TIMEOUT is %q: must be a Go duration, for example 30s", text))
		}
	}
	n.Always = !is("NEVER_KILL_ISTIO_ON_FAILURE")
	if is("NEVER_KILL_ISTIO") {
		return n, err
	}
	if quit := get("ISTIO_QUIT_API"); quit != "" {
		n.Quit = append(n.Quit, strings.TrimSuffix(quit, "/")+"/quitquitquit")
	}
	for more := range strings.SplitSeq(get("GENERIC_QUIT_ENDPOINTS"), ",") {
		if more = strings.TrimSpace(more); more != "" {
			n.Quit = append(n.Quit, more)
		}
	}
	return n, err
}

// neighbourCall limits one call to a sidecar.
const neighbourCall = 5 * time.Second

// Await returns when the sidecar serves.
func (n Neighbour) Await(ctx context.Context) error {
	if n.Ready == "" {
		return nil
	}
	if n.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, n.Timeout)
		defer cancel()
	}
	var err error
	isReady := func() bool { err = call(ctx, http.MethodGet, n.Ready); return err == nil }
	if poll.Until(ctx, 50*time.Millisecond, isReady) != nil {
		return fmt.Errorf("wait for the sidecar (ENVOY_ADMIN_API): %w", err)
	}
	return nil
}

// End stops the sidecar once the app has exited with this code.
func (n Neighbour) End(code int, log *slog.Logger) {
	if code != 0 && !n.Always {
		return
	}
	for _, url := range n.Quit {
		if err := call(context.Background(), http.MethodPost, url); err != nil {
			log.Warn("cannot notify the sidecar that the app has exited", "url", url, "error", err)
		}
	}
}

func call(ctx context.Context, method, url string) error {
	ctx, cancel := context.WithTimeout(ctx, neighbourCall)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	return nil
}
