package gateway

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleTime is how long a file that may be half written (it is empty, or its
// last line has no end) must be left alone before it is believed.
const settleTime = 50 * time.Millisecond

// ParseEndpoints reads a list of endpoints: one host:port on a line, blank
// lines and what follows a # left out. An empty list is a list. An error names
// the file (name is only used for that) and the line, and says what is accepted.
func ParseEndpoints(name string, data []byte) ([]string, error) {
	var out []string
	number := 0
	for line := range bytes.Lines(data) {
		number++
		text, _, _ := strings.Cut(string(line), "#")
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		if err := checkEndpoint(text); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
		out = append(out, text)
	}
	return out, nil
}

func checkEndpoint(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		var n uint64
		n, err = strconv.ParseUint(port, 10, 16)
		if err == nil && n > 0 && host != "" && !strings.ContainsAny(host, " \t/") {
			return nil
		}
	}
	return fmt.Errorf("endpoint %q: accepted is host:port with a port from 1 to 65535 ([host]:port for IPv6)", addr)
}

func readEndpoints(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the endpoints file (an empty file is accepted): %w", err)
	}
	return ParseEndpoints(file, data)
}

// fileWatch follows an endpoints file. It watches the folder: the file itself
// is another one after each rename, and a mounted ConfigMap changes by a
// symbolic link beside it.
type fileWatch struct {
	file      string
	endpoints *endpoints
	log       *slog.Logger
	watcher   *fsnotify.Watcher
	last      []byte // what was applied or refused, so that nothing is said twice
}

func watchEndpoints(file string, e *endpoints, log *slog.Logger) (*fileWatch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch the endpoints file %s: %w", file, err)
	}
	if err := watcher.Add(filepath.Dir(file)); err != nil {
		_ = watcher.Close()
		return nil, fmt.Errorf("watch the folder of the endpoints file %s: %w", file, err)
	}
	return &fileWatch{file: file, endpoints: e, log: log, watcher: watcher}, nil
}

// run applies changes until ctx ends.
func (w *fileWatch) run(ctx context.Context) {
	defer func() { _ = w.watcher.Close() }()
	settled := time.NewTimer(settleTime)
	defer settled.Stop()
	// What changed between New and the watch: looked at now, believed as above.
	w.look(settled, false)
	for {
		select {
		case <-ctx.Done():
			return
		case <-settled.C:
			w.look(settled, true)
		case event, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			// A neighbour that is written to, such as a log, says nothing.
			if filepath.Base(event.Name) == filepath.Base(w.file) || event.Op&^(fsnotify.Write|fsnotify.Chmod) != 0 {
				w.look(settled, false)
			}
		case err, ok := <-w.watcher.Errors:
			if !ok {
				return
			}
			// An overflow of the queue, mostly: events are lost, so look.
			w.log.Warn("watch of the endpoints file was disturbed", "file", w.file, "error", err)
			w.look(settled, false)
		}
	}
}

// look reads the file and applies it, if it is a whole one or has settled.
func (w *fileWatch) look(settled *time.Timer, believe bool) {
	data, err := os.ReadFile(w.file)
	if !believe && (err != nil || !bytes.HasSuffix(data, []byte("\n"))) {
		settled.Reset(settleTime)
		return
	}
	settled.Stop()
	if err != nil {
		w.log.Error("endpoints file cannot be read, the old list is kept", "file", w.file, "error", err)
		w.last = nil
		return
	}
	if w.last != nil && bytes.Equal(data, w.last) {
		return
	}
	w.last = append([]byte{}, data...)
	addrs, err := ParseEndpoints(w.file, data)
	if err != nil {
		w.log.Error("endpoints file is wrong, the old list is kept", "error", err)
		return
	}
	w.endpoints.set(addrs)
}
