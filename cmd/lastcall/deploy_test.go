package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// understood fails the test when a command line of an example is none of ours.
func understood(t *testing.T, line []string) {
	t.Helper()
	if len(line) == 0 || filepath.Base(line[0]) != "lastcall" {
		t.Fatalf("%q does not call lastcall", line)
	}
	cmd, rest, err := command().Find(line[1:])
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: %v", strings.Join(line, " "), err)
	}
}

func seconds(t *testing.T, s string) time.Duration {
	t.Helper()
	if !strings.HasSuffix(s, "s") {
		s += "s"
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestComposeExample(t *testing.T) {
	b, err := os.ReadFile("../../deploy/compose/docker-compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image, Restart      string
			Entrypoint, Command []string
			Environment         map[string]string
			StopGracePeriod     string `json:"stop_grace_period"`
			StopSignal          string `json:"stop_signal"`
			Ports               []string
			Healthcheck         struct {
				Test              []string
				Interval, Timeout string
				Retries           int
				StartPeriod       string `json:"start_period"`
			}
		}
	}
	if err := yaml.UnmarshalStrict(b, &file); err != nil {
		t.Fatal(err)
	}
	web := file.Services["web"]
	understood(t, append(web.Entrypoint, web.Command...))
	if web.Healthcheck.Test[0] != "CMD" {
		t.Errorf("the health check is %q, want CMD: the image may have no shell", web.Healthcheck.Test)
	}
	understood(t, web.Healthcheck.Test[1:])
	if stop, grace := seconds(t, web.StopGracePeriod), seconds(t, web.Environment["TERMINATION_GRACE_PERIOD_SECONDS"]); stop < grace {
		t.Errorf("SIGKILL comes after %v, lastcall takes up to %v", stop, grace)
	}
}

func TestSystemdUnit(t *testing.T) {
	b, err := os.ReadFile("../../deploy/systemd/lastcall.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := strings.ReplaceAll(string(b), "\\\n", "")
	value := func(name string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(unit)
		if found == nil {
			t.Fatalf("the unit has no %s", name)
		}
		return found[1]
	}
	understood(t, strings.Fields(value("ExecStart")))
	understood(t, strings.Fields(value("ExecReload")))
	if !strings.Contains(value("ExecStart"), "--pid-file "+value("PIDFile")+" ") {
		t.Errorf("lastcall does not write %s", value("PIDFile"))
	}
	if stop, grace := seconds(t, value("TimeoutStopSec")), seconds(t, value("Environment=TERMINATION_GRACE_PERIOD_SECONDS")); stop <= grace {
		t.Errorf("SIGKILL comes after %v, lastcall takes up to %v", stop, grace)
	}

	t.Run("as systemd reads it", func(t *testing.T) {
		analyze, err := exec.LookPath("systemd-analyze")
		switch {
		case err != nil && peers.InCI():
			t.Fatal(err)
		case err != nil:
			t.Skipf("%v: it comes with the package systemd", err)
		}
		file := filepath.Join(t.TempDir(), "lastcall.service")
		text := regexp.MustCompile(`/usr/local/bin/[a-z-]+`).ReplaceAllString(string(b), "/bin/true")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(analyze, "verify", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
	})
}
