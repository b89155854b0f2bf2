package agent

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/phase"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/statusserver"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// status is the server on the status port (15020). Unlike pilot-agent's it serves until the very end: scrapes and hooks
// during a drain get their responses.
type status struct {
	a       *agent
	address net.Addr
	server  *statusserver.Server
	metrics *metrics
	merge   merge // its proxy is set before readiness
}

func (a *agent) startStatus() (*status, error) {
	address := net.JoinHostPort(a.Status.Address, strconv.Itoa(a.Settings.StatusPort.Value))
	ln, err := listen.Open("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the status server on %s (from %s; "+
			"choose another by statusPort or --status-port): %w", address, a.Settings.StatusPort.Source, err)
	}
	s := &status{a: a, address: ln.Addr(), metrics: newMetrics(a.phases, a.Status.Metrics...)}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz/ready", s.ready)
	mux.HandleFunc("/quitquitquit", own(s.quit))
	mux.HandleFunc("/drain", own(s.drain))
	mux.HandleFunc("/wait", own(s.wait))
	mux.HandleFunc("/present", own(s.present))
	mux.HandleFunc("/wait/{token...}", s.waitByToken)
	mux.HandleFunc("/deadline/{token...}", own(s.deadline))
	mux.HandleFunc("GET /connections", fromPod(s.connections))
	if a.Status.Profiles {
		profiles(mux)
	}
	mux.Handle("/app-health/", a.Status.Probes)
	mux.Handle("/app-lifecycle/", a.Status.Probes)
	s.merge = merge{own: s.metrics.registry, app: a.Settings.ScrapeTarget.Value,
		failed: s.metrics.scrapeFailed, log: a.log}
	scrapes := statusserver.Scrapes(http.HandlerFunc(s.scrape))
	mux.Handle("/metrics", scrapes)
	mux.Handle("/stats/prometheus", scrapes)
	s.server = statusserver.Serve(statusserver.New(mux, a.log), ln, a.log)
	return s, nil
}

func (s *status) scrape(w http.ResponseWriter, r *http.Request) {
	if !s.a.phases.now().isUp {
		http.Error(w, "not started yet", http.StatusServiceUnavailable)
		return
	}
	s.merge.ServeHTTP(w, r)
}

// ready is the readiness of the inbound side, and of an app that the agent has started. It stays true during a drain:
// terminating endpoints are still a fallback (KEP-1669), and the pod has been removed from its Services already.
func (s *status) ready(w http.ResponseWriter, _ *http.Request) {
	switch now := s.a.phases.now(); {
	case !now.isUp:
		http.Error(w, "not started yet", http.StatusServiceUnavailable)
		return
	case now.starts:
		http.Error(w, "the app does not yet accept connections on "+strings.Join(s.a.appAddresses(), ", "),
			http.StatusServiceUnavailable)
		return
	}
	answer(w, "ready\n")
}

// quit is /quitquitquit. The response comes first, then the exit.
func (s *status) quit(w http.ResponseWriter, r *http.Request) {
	answer(w, "OK")
	_ = http.NewResponseController(w).Flush()
	s.a.requests.Send(drain.QuitNow) // drain logs Istio's line
}

// drain is /drain. In Istio's modes it responds at once, as pilot-agent does; otherwise it is a hook and responds when
// drained.
func (s *status) drain(w http.ResponseWriter, r *http.Request) {
	if s.a.Settings.Mode() == drain.ExitOnZero {
		s.waitAsSidecar(w, r)
		return
	}
	s.a.requests.Send(drain.IstioDrain)
	if err := s.a.phases.drained(r.Context()); err == nil {
		answer(w, "OK")
	}
}

// HeaderLimit in a hook's request asks for an informational response at once, in which the header is how long the hook
// may wait for the response.
const HeaderLimit = "Lastcall-Limit"

// wait is a preStop hook from within the pod: an app's, or with ?of=sidecar the sidecar's own.
func (s *status) wait(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(HeaderLimit) != "" {
		w.Header().Set(HeaderLimit, (s.a.Settings.GracePeriod.Value - killAhead).String())
		w.WriteHeader(http.StatusProcessing)
		w.Header().Del(HeaderLimit)
	}
	switch of := r.URL.Query().Get("of"); of {
	case "":
		s.waitAsApp(w, r)
	case "sidecar":
		s.waitAsSidecar(w, r)
	default:
		http.Error(w, fmt.Sprintf("of=%s: must be sidecar, or absent for an app's hook", strconv.Quote(of)),
			http.StatusBadRequest)
	}
}

// waitAsApp is an app's preStop: it responds when the container may receive its SIGTERM.
func (s *status) waitAsApp(w http.ResponseWriter, r *http.Request) {
	if s.a.isIstio() {
		s.waitAsSidecar(w, r)
		return
	}
	err := s.a.awaitAppHook(r.Context(), hookPorts(r))
	if err == nil && s.a.wantsPresence() {
		w.Header().Set(HeaderPresence, "wanted")
	}
	answerHook(w, err)
}

// waitAsSidecar is the sidecar's own preStop: it begins the drain and responds when no inbound request is left.
func (s *status) waitAsSidecar(w http.ResponseWriter, r *http.Request) {
	first := drain.Hook
	if s.a.isIstio() {
		first = drain.IstioDrain
	}
	s.a.requests.Send(first)
	answerHook(w, s.a.phases.drained(r.Context()))
}

// isIstio reports whether hooks are answered as pilot-agent answers /drain: at once. Istio's fixed wait alone, without
// the rest of its behaviour, does not change hooks.
func (a *agent) isIstio() bool { return a.Settings.Compat.Value == meshconfig.CompatIstio }

func answerHook(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
		answer(w, "drained\n")
	case errors.Is(err, phase.ErrCancelled):
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// waitByToken is wait for a preStop hook by httpGet, which arrives from the node: the pod's token is the permission to
// drain it. Without it the path does not exist.
func (s *status) waitByToken(w http.ResponseWriter, r *http.Request) {
	switch token := r.PathValue("token"); {
	case isToken(token, s.a.Status.HookToken):
		defer statusserver.HoldHook(w, r)()
		s.waitAsApp(w, r)
	case isToken(token, s.a.Status.SidecarToken):
		defer statusserver.HoldHook(w, r)()
		s.waitAsSidecar(w, r)
	default:
		s.refuse(w, r)
	}
}

// deadline is POST /deadline/TOKEN?at=TIME&from=SOURCE: SIGKILL comes at TIME (RFC 3339), sooner than the grace period
// says. The node's observer sends it from within the pod's network namespace. It begins no termination and only
// shortens one: a moment that has passed, or is no sooner than the known one, is refused (409).
func (s *status) deadline(w http.ResponseWriter, r *http.Request) {
	if !isToken(r.PathValue("token"), s.a.Status.HookToken) {
		s.refuse(w, r)
		return
	}
	from := r.URL.Query().Get("from")
	at, err := time.Parse(time.RFC3339Nano, r.URL.Query().Get("at"))
	switch {
	case err != nil || from == "" || len(from) > 32:
		http.Error(w, "must have at=2006-01-02T15:04:05.999Z and from=SOURCE of up to 32 bytes", http.StatusBadRequest)
	case !at.After(time.Now()):
		http.Error(w, "the deadline has passed", http.StatusConflict)
	case !s.a.phases.hasten(at, from, s.a.Settings.GracePeriod.Value):
		http.Error(w, "the deadline is no sooner than the known one", http.StatusConflict)
	default:
		s.a.log.Info("deadline received", "deadline_in", time.Until(at).Round(time.Millisecond), "deadline_from", from)
		s.a.requests.Send(drain.Sooner)
		answer(w, "ok\n")
	}
}

// refuse answers a request without the pod's token as if the path did not exist.
func (s *status) refuse(w http.ResponseWriter, r *http.Request) {
	s.metrics.hookRefused.Inc()
	s.a.throttle.Warn(s.a.log, time.Second, "hook without the pod's token refused", "from", r.RemoteAddr)
	http.NotFound(w, r)
}

func isToken(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.WriteString(w, body)
}

// own admits POST from this pod only, with pilot-agent's error texts. Such a request may take long: its connection is
// kept.
func own(h http.HandlerFunc) http.HandlerFunc {
	return fromPod(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		defer statusserver.Hold(w, r)()
		h(w, r)
	})
}

// fromPod admits programs of this pod only: no other machine and no web page.
func fromPod(h http.HandlerFunc) http.HandlerFunc {
	local := statusserver.Local(h)
	return func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !peer.Addr().Unmap().IsLoopback() {
			http.Error(w, "Only requests from localhost are allowed", http.StatusForbidden)
			return
		}
		local.ServeHTTP(w, r)
	}
}

// alive checks that the data plane and the status port respond, for a watchdog.
func (a *agent) alive(ctx context.Context) error {
	switch activity, err := a.plane.Activity(ctx); {
	case err != nil:
		return fmt.Errorf("check the data plane: %w", err)
	case !activity.Known:
		return errors.New("check the data plane: its activity is unknown")
	}
	return a.status.alive(ctx)
}

// alive sends the status port a request as any client does. A 503 is fine: the app may still be starting.
func (s *status) alive(ctx context.Context) error {
	host := s.a.Status.Address
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	at := net.JoinHostPort(host, strconv.Itoa(int(tcp.AddrPort(s.address).Port())))
	if _, err := probe.Get(ctx, "http://"+at+"/healthz/ready", http.Header{}, tcp.DialLoopback); err != nil {
		return fmt.Errorf("check the status server: %w", err)
	}
	return nil
}
