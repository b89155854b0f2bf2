package open

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, answer http.HandlerFunc) int {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr).Port
}

func TestEveryRequestIsAnswered(t *testing.T) {
	port := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	result, err := Run(t.Context(), Options{Port: port, Path: "/", Connections: 4, Rate: 1000, Duration: 200 * time.Millisecond})
	if err != nil || result.Requests != 200 || len(result.Latencies) != 200 {
		t.Errorf("%d requests, %d latencies, %v; want 200", result.Requests, len(result.Latencies), err)
	}
}

// A stall is seen by each request that was due in it, and not only by the one that met it.
func TestAStallIsNotOmitted(t *testing.T) {
	const stall = 300 * time.Millisecond
	var requests atomic.Int32 // the first request is before the clock starts
	port := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 2 {
			time.Sleep(stall)
		}
		_, _ = io.WriteString(w, "done")
	})
	result, err := Run(t.Context(), Options{Port: port, Path: "/", Connections: 1, Rate: 100, Duration: 400 * time.Millisecond})
	must.Do(t, err)
	late := 0
	for _, latency := range result.Latencies {
		if latency > stall/3 {
			late++
		}
	}
	if late < 15 { // of 40, those that were due in its first 200 ms
		t.Errorf("%d requests saw the stall: %v", late, result.Latencies)
	}
}

func TestRunTellsOfFailures(t *testing.T) {
	for says, answer := range map[string]http.HandlerFunc{
		"not 200":        func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"unexpected EOF": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"Content-Length": func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() },
	} {
		_, err := Run(t.Context(), Options{Port: serve(t, answer), Path: "/", Connections: 1, Rate: 10, Duration: time.Second})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error %v; want one with %q", err, says)
		}
	}
}
