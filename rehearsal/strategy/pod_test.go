package strategy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// A pod of real processes without a sidecar: it answers, and it ends as its app does.
func TestPodWithoutSidecar(t *testing.T) {
	for _, tt := range []struct {
		app  SIGTERMBehaviour
		exit string
	}{{Exits, "SIGTERM"}, {ClosesListener, "exit 0"}} {
		t.Run(tt.exit, func(t *testing.T) {
			e := env(t)
			p, err := e.StartPod(t.Context(), Strategy{Name: "x", Sidecar: NoSidecar, App: tt.app}, t.TempDir())
			must.Do(t, err)
			must.Do(t, get(t.Context(), "http://"+p.Address+"/get"))
			end := p.Terminate(t.Context())
			if end.AppExit != tt.exit || end.Killed() || end.Gone().Before(end.Began) {
				t.Errorf("%+v", end)
			}
		})
	}
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// An app that fails to start is an error with the end of its log, at once.
func TestAppThatFails(t *testing.T) {
	e := env(t)
	for _, tt := range []struct{ app, want string }{
		{"/bin/sh -c 'echo no such module {port} >&2; exit 3'", "no such module"},
		{"/no/such/app {port}", "not found"},
		{"true {port}", "exited (exit 0) before it could listen"},
	} {
		e.Programs.App = tt.app
		_, err := e.StartPod(t.Context(), Strategy{Name: "x"}, t.TempDir())
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.app, err)
		}
	}
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		e.Programs.App = "sleep 60 {port}"
		if _, err := e.StartPod(ctx, Strategy{Name: "x"}, t.TempDir()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// The old netstat loop ends with the app's listening socket, whatever is in flight.
func TestNetstatLoop(t *testing.T) {
	e := env(t)
	p, err := e.StartPod(t.Context(), Strategy{Name: "x", App: ClosesListener}, t.TempDir())
	must.Do(t, err)
	answered := make(chan error, 1)
	go func() { answered <- get(t.Context(), "http://"+p.Address+"/delay/6") }()
	must.Do(t, AwaitInFlight(t.Context(), map[int]int{p.AppPort: 0}))
	must.Do(t, p.App.Terminate())
	must.Do(t, netstatLoop(p.App).Run(t.Context()))
	select {
	case err := <-answered:
		t.Fatal("the loop outlasted the request: ", err)
	default:
	}
	if err := <-answered; err != nil {
		t.Error("the app did not finish what was in flight: ", err)
	}
}

func TestSelect(t *testing.T) {
	all := Strategies()
	if got, err := Select(all, nil); err != nil || len(got) != len(all) {
		t.Errorf("got %d, %v", len(got), err)
	}
	got, err := Select(all, []string{"lastcall-native-exit", "istio-default", "istio-default"})
	if err != nil || len(got) != 2 || got[0].Name != "istio-default" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestFindPrograms(t *testing.T) {
	dir := t.TempDir()
	sidecar := []Strategy{{Sidecar: Lastcall}}
	p := Programs{Self: filepath.Join(dir, "lastcallctl")}
	if err := p.find(t.Context(), "", []Strategy{{Sidecar: NoSidecar}}); err != nil {
		t.Error("lastcall was looked for without need: ", err)
	}
	beside := filepath.Join(dir, "lastcall")
	must.Do(t, os.WriteFile(beside, nil, 0o644))
	if err := p.find(t.Context(), "", sidecar); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("got %v", err)
	}
	must.Do(t, os.Chmod(beside, 0o755))
	if err := p.find(t.Context(), "", sidecar); err != nil || p.Lastcall != beside {
		t.Errorf("got %v, %v", p, err)
	}
}

// What would change a sidecar's end is not inherited.
func TestEnvironment(t *testing.T) {
	t.Setenv("LASTCALL_QUIET_TIME", "60s")
	t.Setenv("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true")
	t.Setenv("OF_NO_CONCERN", "1")
	text := strings.Join(environment("PORT=1"), "\n")
	for want, there := range map[string]bool{
		"LASTCALL_QUIET_TIME": false, "EXIT_ON_ZERO": false, "OF_NO_CONCERN=1": true, "PORT=1": true,
	} {
		if strings.Contains(text, want) != there {
			t.Errorf("%s: want %v", want, there)
		}
	}
}
