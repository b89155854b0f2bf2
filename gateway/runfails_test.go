package gateway

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRunFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := filepath.Join(t.TempDir(), "etc")
	file := filepath.Join(dir, "pods")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		o    RunOptions
		want string
	}{
		{"an address that is taken, before the source knows everything", RunOptions{HTTP: taken.Addr().String(), Source: notYet{}}, "--http " + taken.Addr().String()},
		{"the other one", RunOptions{HTTP: "127.0.0.1:0", HTTPS: taken.Addr().String()}, "--https " + taken.Addr().String()},
		{"the admin's", RunOptions{Admin: taken.Addr().String()}, "--admin " + taken.Addr().String()},
		{"a source that cannot begin", RunOptions{Source: notYet{errors.New("no way")}}, "gateway: no way"},
		{"the folder of the endpoints file is gone", RunOptions{Source: &EndpointsFile{}}, "watch the folder of the endpoints file " + file},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, err := New(Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := tt.o.Source.(*EndpointsFile); ok {
				f, err := FollowFile(g, file, HTTP1)
				if err != nil {
					t.Fatal(err)
				}
				tt.o.Source = f
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
			if tt.o.Source == nil {
				tt.o.Source = static{}
			}
			tt.o.Termination = Termination{GracePeriod: time.Minute, FailReadinessAfter: Never}
			if _, err := g.Run(t.Context(), tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
}

func TestBadOptions(t *testing.T) {
	dir := t.TempDir()
	wrong := filepath.Join(dir, "pods")
	if err := os.WriteFile(wrong, []byte("nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file, want string
	}{
		{"no such file", filepath.Join(dir, "none"), "read the endpoints file (it may be empty, but must exist): open " + filepath.Join(dir, "none")},
		{"a folder", dir, "read the endpoints file"},
		{"a wrong file", wrong, wrong + `:1: endpoint "nowhere"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, err := New(Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := FollowFile(g, tt.file, HTTP1); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
		})
	}
	_, err := New(Options{ConnectTimeout: -1, RequestTimeout: -1, MaxIdlePerEndpoint: -1, MaxAttempts: -1})
	for _, want := range []string{"connect timeout is -1ns", "request timeout is", "idle connections per endpoint is -1", "attempts to connect is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
