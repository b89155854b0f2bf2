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

const (
	// settleTime is how long a file that may be half written (rewritten in
	// place, empty, or its last line without an end) is given before it is believed.
	settleTime = 50 * time.Millisecond

	// lostTime is how often a file that cannot be read is looked for.
	lostTime = 500 * time.Millisecond
)

// ParseEndpoints reads a list of endpoints: one host:port on a line, blank
// lines and what follows a # left out. An empty list is a list. An error names
// the file (name is only used for that) and the line, and says what is accepted.
func ParseEndpoints(name string, data []byte) ([]string, error) {
	var out []string
	number := 0
	for line := range bytes.Lines(bytes.TrimPrefix(data, []byte("\ufeff"))) {
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

// EndpointsFile is a Source: everything goes to the endpoints of one file.
//
// It watches the folder: the file itself is another one after each rename, and a mounted
// ConfigMap changes by a symbolic link beside it.
type EndpointsFile struct {
	g       *Gateway
	file    string
	pool    *Pool
	speak   Protocol
	log     *slog.Logger
	watcher *fsnotify.Watcher
	settled *time.Timer
	waiting bool   // settled has been set and has not fired
	last    []byte // what was applied or refused, so that nothing is said twice
	lost    bool   // it could not be read the last time
}

// FollowFile reads file and makes it the gateway's only destination, whose endpoints all speak
// protocol. Its Run watches it.
func FollowFile(g *Gateway, file string, protocol Protocol) (*EndpointsFile, error) {
	addrs, err := readEndpoints(file)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	pool := g.NewPool("")
	pool.Replace(addrs, protocol, EndpointStates{Ready: len(addrs)})
	g.SetRoutes(Default(pool))
	return &EndpointsFile{g: g, file: file, pool: pool, speak: protocol, log: g.log}, nil
}

// Pending is "": what is needed is there from the start.
func (w *EndpointsFile) Pending() string { return "" }

// Run applies changes until ctx ends. It fails when the file cannot be watched.
func (w *EndpointsFile) Run(ctx context.Context, synced func()) error {
	defer w.pool.Close()
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the endpoints file %s: %w", w.file, err)
	}
	if err := watcher.Add(filepath.Dir(w.file)); err != nil {
		_ = watcher.Close()
		return fmt.Errorf("watch the folder of the endpoints file %s: %w", w.file, err)
	}
	w.watcher, w.settled = watcher, time.NewTimer(settleTime)
	w.settled.Stop()
	synced()
	w.run(ctx)
	return nil
}

// run applies changes until ctx ends.
func (w *EndpointsFile) run(ctx context.Context) {
	defer func() { _ = w.watcher.Close() }()
	defer w.settled.Stop()
	w.look(false) // what changed between FollowFile and the watch
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.settled.C:
			w.waiting = false
			w.look(true)
		case event, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			switch {
			case !event.Op.Has(fsnotify.Create | fsnotify.Remove | fsnotify.Rename):
				// Rewritten in place, perhaps line by line. A neighbour that is
				// written to, such as a log, says nothing.
				if filepath.Base(event.Name) == filepath.Base(w.file) {
					w.later(settleTime)
				}
			default:
				w.look(false)
			}
		case err, ok := <-w.watcher.Errors:
			if !ok {
				return
			}
			// An overflow of the queue, mostly: events are lost, so look.
			w.log.Warn("watch of the endpoints file was disturbed", "file", w.file, "error", err)
			w.look(false)
		}
	}
}

// later looks again after d, and believes what it sees then. Further events do not
// put it off.
func (w *EndpointsFile) later(d time.Duration) {
	if !w.waiting {
		w.waiting = true
		w.settled.Reset(d)
	}
}

// look reads the file and applies it, if it is a whole one or is to be believed
// as it is.
func (w *EndpointsFile) look(believe bool) {
	// The folder may be another one by now, and the watch gone with the old
	// one. If it is still the same, this does nothing.
	_ = w.watcher.Add(filepath.Dir(w.file))
	data, err := os.ReadFile(w.file)
	if !believe && (err != nil || !bytes.HasSuffix(data, []byte("\n"))) {
		w.later(settleTime)
		return
	}
	if err != nil {
		if !w.lost {
			w.log.Error("endpoints file cannot be read, the old list is kept", "file", w.file, "error", err)
		}
		w.lost, w.last = true, nil
		w.later(lostTime)
		return
	}
	if w.lost {
		w.lost = false
		w.log.Info("endpoints file can be read again", "file", w.file)
	}
	if w.last != nil && bytes.Equal(data, w.last) {
		return
	}
	w.last = append([]byte{}, data...)
	addrs, err := ParseEndpoints(w.file, data)
	if err != nil {
		w.log.Error("endpoints file is wrong, the old list is kept", "error", err)
		w.g.Reloaded("endpoints", err)
		return
	}
	w.pool.Replace(addrs, w.speak, EndpointStates{Ready: len(addrs)})
	w.g.Reloaded("endpoints", nil)
}
