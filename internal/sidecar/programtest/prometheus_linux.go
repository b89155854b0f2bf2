package programtest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// Prometheus starts a real one until the end of the test and returns its URL. Its data is in folder/data, and files
// that the configuration names are in folder.
func Prometheus(t *testing.T, folder string, config map[string]any) (url string) {
	t.Helper()
	program := peers.Need(t, "prometheus")
	file, address := filepath.Join(folder, "prometheus.yaml"), nettest.FreeAddress(t, "127.0.0.1")
	text, err := json.Marshal(config) // which is YAML
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command(program, "--config.file", file, "--storage.tsdb.path", filepath.Join(folder, "data"),
		"--web.listen-address", address, "--log.level", "warn")
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil || t.Failed() {
			t.Errorf("Prometheus: %v\n%s", err, &log)
		}
	})
	return "http://" + address
}
