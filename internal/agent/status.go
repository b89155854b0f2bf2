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
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sideport"
)

// status is the server on the status port (15020). Unlike pilot-agent's it goes
// on to the very end: who scrapes or waits during a drain is answered.
type status struct {
	a       *agent
	address net.Addr
	server  *http.Server
	served  chan struct{}
	metrics *metrics
	merge   merge        // its proxy is set before the agent is ready
	due     sync.RWMutex // read-locked by each answer under way
}

// statusAddress is where the status server listens.
func (a *agent) statusAddress() string {
	return net.JoinHostPort(a.StatusAddress, strconv.Itoa(a.Settings.StatusPort.Value))
}

func (a *agent) startStatus() (*status, error) {
	address := a.statusAddress()
	ln, err := a.Succession.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the status server on %s (from %s; choose another by statusPort or --status-port): %w", address, a.Settings.StatusPort.Source, err)
	}
	s := &status{a: a, address: ln.Addr(), served: make(chan struct{}), metrics: newMetrics(a.phases, a.Metrics...)}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz/ready", s.ready)
	mux.HandleFunc("/quitquitquit", own(s.quit))
	mux.HandleFunc("/drain", own(s.drain))
	mux.HandleFunc("/wait", own(s.wait))
	mux.HandleFunc("/present", own(s.present))
	mux.HandleFunc("/hot-restart", own(a.Succession.ServeHTTP))
	mux.HandleFunc("/wait/{token...}", s.waitByToken)
	mux.HandleFunc("GET /connections", fromPod(s.connections))
	if a.Profiles {
		profiles(mux)
	}
	mux.Handle("/app-health/", a.Probes)
	mux.Handle("/app-lifecycle/", a.Probes)
	s.merge = merge{own: s.metrics.registry, app: a.Settings.ScrapeTarget.Value, lean: a.LeanScrape, failed: s.metrics.scrapeFailed, log: a.log}
	scrapes := sideport.Scrapes(http.HandlerFunc(s.scrape))
	mux.Handle("/metrics", scrapes)
	mux.Handle("/stats/prometheus", scrapes)
	s.server = sideport.New(s.counted(mux), a.log)
	if a.plane != nil {
		s.watch(a.plane)
	}
	go func() {
		defer close(s.served)
		if err := s.server.Serve(sideport.Limit(ln)); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("the status server has ended", "error", err)
		}
	}()
	return s, nil
}

// watch takes the data plane in, whose metrics are told from now on.
func (s *status) watch(p dataPlane) {
	if own, ok := p.(interface {
		Metrics(context.Context) (io.ReadCloser, error)
	}); ok {
		s.merge.proxy = own.Metrics
	}
	s.metrics.watch(p)
}

func (s *status) scrape(w http.ResponseWriter, r *http.Request) {
	if !s.a.phases.snapshot().up {
		http.Error(w, "not started yet", http.StatusServiceUnavailable)
		return
	}
	s.merge.ServeHTTP(w, r)
}

func (s *status) count(r drain.Report) { s.metrics.count(r) }

// counted lets close wait for the answers under way, and only for them:
// http.Server.Shutdown also waits for connections on which nothing was asked yet.
func (s *status) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.due.RLock()
		defer s.due.RUnlock()
		h.ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush()
	})
}

// close lets the answers out that are due, hooks' above all, and ends.
func (s *status) close() {
	answered := make(chan struct{})
	go func() { defer close(answered); s.due.Lock() }()
	select {
	case <-answered:
	case <-time.After(answerTime):
	}
	sideport.End(s.server)
	<-s.served
	<-answered // Close has ended their connections, and with them their contexts
	s.due.Unlock()
}

// answerTime is how long the end waits for answers of the status server.
const answerTime = 200 * time.Millisecond

// ready is the readiness of the pod's way in, and of the app where we have started it. It
// stays true during a drain: terminating endpoints are still a fallback (KEP-1669), and
// who takes the pod out of its service has done so already.
func (s *status) ready(w http.ResponseWriter, _ *http.Request) {
	switch now := s.a.phases.snapshot(); {
	case !now.up:
		http.Error(w, "not started yet", http.StatusServiceUnavailable)
		return
	case now.starts:
		http.Error(w, "the app does not accept connections yet on "+strings.Join(s.a.appAddresses(), ", "), http.StatusServiceUnavailable)
		return
	}
	answer(w, "ready\n")
}

// quit is /quitquitquit: answered first, then done.
func (s *status) quit(w http.ResponseWriter, r *http.Request) {
	answer(w, "OK")
	_ = http.NewResponseController(w).Flush()
	s.a.signal(r.Context(), drain.QuitNow)
	s.a.log.Info("handling /quitquitquit, notifying pilot-agent to exit")
}

// drain is /drain. Under Istio's modes it is answered at once, as
// pilot-agent does; in lastcall's own it is a hook and is answered when drained.
func (s *status) drain(w http.ResponseWriter, r *http.Request) {
	if s.a.Settings.Mode() == drain.ExitOnZero {
		s.waitAsSidecar(w, r)
		return
	}
	s.a.signal(r.Context(), drain.IstioDrain)
	if err := s.a.phases.drained(r.Context()); err == nil {
		answer(w, "OK")
	}
}

// wait is a preStop hook from within the pod: an app's, or with ?of=sidecar the
// sidecar's own.
func (s *status) wait(w http.ResponseWriter, r *http.Request) {
	switch of := r.URL.Query().Get("of"); of {
	case "":
		s.waitAsApp(w, r)
	case "sidecar":
		s.waitAsSidecar(w, r)
	default:
		http.Error(w, fmt.Sprintf("of=%s: must be sidecar, or absent for an app's hook", strconv.Quote(of)), http.StatusBadRequest)
	}
}

// waitAsApp is an app's preStop: it is answered when the container may get its SIGTERM.
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

// waitAsSidecar is the sidecar's own preStop: it begins the drain and is answered when no
// inbound request is left.
func (s *status) waitAsSidecar(w http.ResponseWriter, r *http.Request) {
	first := drain.Hook
	if s.a.isIstio() {
		first = drain.IstioDrain
	}
	s.a.signal(r.Context(), first)
	answerHook(w, s.a.phases.drained(r.Context()))
}

// isIstio says whether hooks are answered as pilot-agent answers /drain: at once. Its
// fixed wait without the rest of its behaviour holds for hooks as well.
func (a *agent) isIstio() bool { return a.Settings.Compat.Value == meshconfig.CompatIstio }

func answerHook(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
		answer(w, "drained\n")
	case errors.Is(err, errNotDrained):
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// waitByToken is wait for a preStop hook by httpGet, which comes from the node:
// who knows the pod's token may drain it. Everybody else is told that there is
// nothing.
func (s *status) waitByToken(w http.ResponseWriter, r *http.Request) {
	switch token := r.PathValue("token"); {
	case isToken(token, s.a.HookToken):
		defer sideport.Hold(w, r)()
		s.waitAsApp(w, r)
	case isToken(token, s.a.SidecarToken):
		defer sideport.Hold(w, r)()
		s.waitAsSidecar(w, r)
	default:
		s.metrics.hookRefused.Inc()
		s.a.throttle.Warn(s.a.log, time.Second, "a hook without the pod's token was refused", "from", r.RemoteAddr)
		http.NotFound(w, r)
	}
}

func isToken(got, want string) bool {
	return want != "" && subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

func answer(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.WriteString(w, body)
}

// own admits POST from this pod only, in pilot-agent's words. Such a request may take
// its time: its connection is kept.
func own(h http.HandlerFunc) http.HandlerFunc {
	return fromPod(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		defer sideport.Hold(w, r)()
		h(w, r)
	})
}

// fromPod admits programs of this pod: no other machine, and no web page.
func fromPod(h http.HandlerFunc) http.HandlerFunc {
	local := sideport.Local(h)
	return func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !peer.Addr().Unmap().IsLoopback() {
			http.Error(w, "Only requests from localhost are allowed", http.StatusForbidden)
			return
		}
		local.ServeHTTP(w, r)
	}
}
