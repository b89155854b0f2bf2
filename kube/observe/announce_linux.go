package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Limits of an announcement.
const (
	announceTimeout  = time.Second
	announceAttempts = 3
	announcePause    = 200 * time.Millisecond
)

// Results of an announcement, the label result.
const (
	accepted = "accepted"
	refused  = "refused" // the agent knows an earlier deadline, or another token
	failed   = "failed"  // no agent answered
)

// announceLocked sends the agent of a terminating pod the moment of SIGKILL, if that is sooner than the time that it
// has. o.mu is locked. There is one goroutine for each termination at most.
func (o *Observer) announceLocked(ctx context.Context, t *tracked) {
	if !o.Announces || !t.isEnding || t.isDone || t.isAnnouncing || t.sandbox == nil || t.pod.Agent.Token == "" {
		return
	}
	d := t.pod.sooner(t.graceSince, o.ShutdownGrace)
	isKnown := !d.At.Before(t.began.Add(t.pod.Grace)) || !t.announced.At.IsZero() && !d.At.Before(t.announced.At)
	if isKnown || !d.At.After(time.Now()) {
		return
	}
	t.announced, t.isAnnouncing = d, true
	agent, sandbox, namespace, pod := t.pod.Agent, t.sandbox, t.pod.Namespace, t.pod.Name
	o.work.Go(func() {
		result, err := sandbox.announce(ctx, agent, d)
		attrs := []any{"namespace", namespace, "pod", pod,
			"deadline_in", time.Until(d.At).Round(time.Millisecond), "deadline_from", d.From}
		if result == accepted {
			o.Log.Info("announced the deadline to lastcall's agent", attrs...)
		} else {
			o.Log.Warn("cannot announce the deadline to lastcall's agent", append(attrs, "error", err)...)
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if t.isAnnouncing = false; result == accepted {
			t.accepted = d
		}
		o.Count.deadlines.WithLabelValues(d.From, result).Inc()
		o.announceLocked(ctx, t) // there may be a sooner one meanwhile
	})
}

// announce sends a deadline to the agent in the network namespace of the process. Errors do not contain the token.
func (h *handle) announce(ctx context.Context, a pod.Agent, d Deadline) (result string, err error) {
	target := url.URL{
		Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port)), Path: "/deadline/" + a.Token,
		RawQuery: url.Values{"at": {d.At.UTC().Format(time.RFC3339Nano)}, "from": {d.From}}.Encode(),
	}
	client := http.Client{
		Transport:     &http.Transport{DialContext: h.dial, DisableKeepAlives: true},
		Timeout:       announceTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for range announceAttempts {
		var request *http.Request
		if request, err = http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil); err != nil {
			return failed, errors.New("the agent's address is invalid")
		}
		var response *http.Response
		if response, err = client.Do(request); err == nil {
			text, _ := io.ReadAll(io.LimitReader(response.Body, 256))
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return accepted, nil
			}
			return refused, fmt.Errorf("the agent answered %d: %.256q", response.StatusCode, text)
		}
		var withURL *url.Error
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		if err := poll.Pause(ctx, announcePause); err != nil {
			return failed, err
		}
	}
	return failed, fmt.Errorf("connect to the agent: %w", err)
}

// dial connects to an address, which must not be a name, from within the network namespace of the process.
func (h *handle) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	raw, err := h.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	gone := raw.Control(func(fd uintptr) {
		err = sockdiag.Within(int(fd), func() (err error) {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
	})
	if gone != nil {
		return nil, fmt.Errorf("the pod's first process has exited: %w", gone)
	}
	return conn, err
}
