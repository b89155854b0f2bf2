package peers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program makes an executable called name in a new folder and returns the folder.
func program(t *testing.T, name string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestFindLooksInOrder(t *testing.T) {
	named, cached, onPath := program(t, "soup"), program(t, "soup"), program(t, "soup")
	cache := t.TempDir()
	if err := os.Rename(cached, filepath.Join(cache, "bin")); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for _, step := range []struct {
		name                  string
		variable, peers, path string
		want                  string
	}{
		{"the variable comes first", filepath.Join(named, "soup"), cache, onPath, filepath.Join(named, "soup")},
		{"then what peers/install brought", "", cache, onPath, filepath.Join(cache, "bin", "soup")},
		{"then PATH", "", empty, onPath, filepath.Join(onPath, "soup")},
		{"else nothing", "", empty, empty, ""},
		{"a variable that names nothing is an error, not a reason to look on", "/nowhere/soup", cache, onPath, ""},
	} {
		t.Run(step.name, func(t *testing.T) {
			t.Setenv("LASTCALL_PEER_SOUP", step.variable)
			t.Setenv("LASTCALL_PEERS", step.peers)
			t.Setenv("PATH", step.path)
			got, err := Find("soup")
			if got != step.want || (err == nil) != (step.want != "") {
				t.Errorf("Find(soup) = %q, %v; want %q", got, err, step.want)
			}
		})
	}
}

func TestFindSaysHowToGetIt(t *testing.T) {
	_, err := Find("no-such-peer")
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "make peers") ||
		!strings.Contains(err.Error(), "LASTCALL_PEER_NO_SUCH_PEER=") {
		t.Errorf("error is %v", err)
	}
}

// outcome notes how a test would have ended.
type outcome struct{ skipped, failed string }

func (*outcome) Helper()                          {}
func (o *outcome) Skipf(format string, a ...any)  { o.skipped = fmt.Sprintf(format, a...) }
func (o *outcome) Fatalf(format string, a ...any) { o.failed = fmt.Sprintf(format, a...) }

func TestNeedSkipsAtHomeAndFailsInCI(t *testing.T) {
	for _, row := range []struct {
		ci, lastcallCI string
		fails          bool
	}{
		{"", "", false},
		{"false", "", false},
		{"true", "", true},
		{"", "1", true},
		{"true", "0", false},
	} {
		t.Setenv("CI", row.ci)
		t.Setenv("LASTCALL_CI", row.lastcallCI)
		var o outcome
		Need(&o, "no-such-peer")
		if row.fails != (o.failed != "") || row.fails == (o.skipped != "") {
			t.Errorf("CI=%q LASTCALL_CI=%q: skipped %q, failed %q", row.ci, row.lastcallCI, o.skipped, o.failed)
		}
	}
}

// Everything that lab/peers/install promises is there, or listed as skipped.
func TestPeersAreThere(t *testing.T) {
	for _, name := range []string{"curl", "envoy", "gunicorn", "h2load", "haproxy", "nghttp", "nginx", "python", "wrk"} {
		t.Run(name, func(t *testing.T) { Need(t, name) })
	}
}
