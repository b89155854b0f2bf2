package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// With nothing that reads its log and its access log, on a FIFO or standard output, a
// gateway serves, drains at SIGTERM, finishes the requests in flight and exits.
func TestGatewayWithAStalledLogReader(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, accessLog := range []string{"-", fifo} {
		t.Run(filepath.Base(accessLog), func(t *testing.T) {
			asked, answer := make(chan struct{}, 1), make(chan struct{})
			app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					asked <- struct{}{}
					<-answer
				}
			}))
			defer app.Close()
			endpoints := filepath.Join(t.TempDir(), "endpoints")
			if err := os.WriteFile(endpoints, []byte(app.Listener.Addr().String()+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			address, full := nettest.FreeAddress(t, "127.0.0.1"), programtest.FullPipe(t)
			cmd := exec.Command("lastcall-gateway", "--http", address, "--endpoints", endpoints, "--access-log", accessLog,
				"--termination-log", fifo, "--grace", "10m")
			cmd.Stdout, cmd.Stderr = full, full
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { defer close(ended); _ = cmd.Wait() }()
			t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })

			const patience = time.Minute
			get := func(path string) error {
				resp, err := http.Get("http://" + address + path)
				if err == nil {
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusOK {
						err = errors.New(resp.Status)
					}
				}
				return err
			}
			for began := time.Now(); get("/"+strings.Repeat("x", 1000)) != nil; time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > patience {
					t.Fatal("the gateway does not serve")
				}
			}
			for range 100 { // more than a FIFO holds
				if err := get("/" + strings.Repeat("x", 1000)); err != nil {
					t.Fatal(err)
				}
			}
			got := make(chan error, 1)
			go func() { got <- get("/slow") }()
			<-asked
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			close(answer)
			if err := <-got; err != nil {
				t.Errorf("the request in flight: %v", err)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("the gateway still runs")
			}
			if code := cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("the gateway ended with %v", cmd.ProcessState)
			}
		})
	}
}
