package agent

import (
	"net/http"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/statusserver"
)

// Probes are the app's probes and httpGet hooks that an injector redirects to the status port, by their path there, for
// example /app-health/app/readyz. They reach the app on loopback, without capture and TLS, and do not count as traffic.
type Probes map[string]*probe.Probe

// ServeHTTP responds as the app does. A probe that fails to reach the app is a 500, as in Istio's agent.
func (p Probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	one, ok := p[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(one.Timeout() + statusserver.WriteTime))
	code, err := one.Run(r.Context(), r.UserAgent())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(code)
}

// longestProfile limits a CPU profile.
const longestProfile = 2 * time.Minute

// profiles serves Go's profiles under /debug/pprof/, for requests from this pod only: a goroutine dump shows clients'
// addresses, and a CPU profile costs time. net/http/pprof serves the same at 0.5 MB of program.
func profiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/{name}", fromPod(func(w http.ResponseWriter, r *http.Request) {
		profile := pprof.Lookup(r.PathValue("name"))
		if profile == nil {
			http.Error(w, "no such profile: must be goroutine, heap, allocs, block, mutex, threadcreate or profile",
				http.StatusNotFound)
			return
		}
		text := r.URL.Query().Get("debug") // FormValue would link mime/multipart
		debug, err := strconv.Atoi(text)
		if err != nil && text != "" || debug < 0 || debug > 2 {
			http.Error(w, "debug must be 0, 1 or 2", http.StatusBadRequest)
			return
		}
		asProfile(w, debug == 0)
		_ = profile.WriteTo(w, debug)
	}))
	var profiling atomic.Bool
	mux.HandleFunc("GET /debug/pprof/profile", fromPod(func(w http.ResponseWriter, r *http.Request) {
		took := 30 * time.Second
		if text := r.URL.Query().Get("seconds"); text != "" {
			n, err := strconv.Atoi(text)
			if took = time.Duration(n) * time.Second; err != nil || took <= 0 || took > longestProfile {
				http.Error(w, "seconds must be 1 to 120", http.StatusBadRequest)
				return
			}
		}
		if !profiling.CompareAndSwap(false, true) {
			http.Error(w, "a CPU profile is being taken already", http.StatusConflict)
			return
		}
		defer profiling.Store(false)
		defer statusserver.Hold(w, r)()
		asProfile(w, true)
		if err := pprof.StartCPUProfile(w); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer pprof.StopCPUProfile()
		done := time.NewTimer(took)
		defer done.Stop()
		select {
		case <-done.C:
		case <-r.Context().Done():
		}
	}))
}

func asProfile(w http.ResponseWriter, isBinary bool) {
	kind := "text/plain; charset=utf-8"
	if isBinary {
		kind = "application/octet-stream"
	}
	w.Header().Set("Content-Type", kind)
}
