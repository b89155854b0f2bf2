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
	// settleTime is how long to wait before a file that may be half written is read again and applied: one that
	// is rewritten in place, empty, or without an end of its last line.
	settleTime = 50 * time.Millisecond

	// lostTime is how often a file that cannot be read is tried again.
	lostTime = 500 * time.Millisecond
)

// ParseEndpoints parses a list of endpoints, one host:port per line. Blank lines and comments (#) are skipped. The list
// may be empty. name is the file's name in errors.
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
	return fmt.Errorf("endpoint %q: must be host:port with a port from 1 to 65535 ([host]:port for IPv6)", addr)
}

func readEndpoints(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the endpoints file (it may be empty, but must exist): %w", err)
	}
	return ParseEndpoints(file, data)
}

// EndpointsFile is a Source that routes all requests to the endpoints of one file.
//
// It watches the file's folder: a rename replaces the file, and a mounted ConfigMap changes through a symbolic link next
// to it.
type EndpointsFile struct {
	g       *Gateway
	file    string
	pool    *Pool
	speak   Protocol
	log     *slog.Logger
	watcher *fsnotify.Watcher
	settled *time.Timer
	waiting bool   // settled is set and has not fired
	last    []byte // the content that was applied or refused last, so that nothing is logged twice
	lost    bool   // the last attempt to read it failed
}

// FollowFile reads file and routes all requests to its endpoints, which all speak protocol. Run watches it.
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

// Pending implements Source. Nothing is pending: FollowFile has read the file.
func (w *EndpointsFile) Pending() string { return "" }

// Run implements Source.
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
	w.look(false) // changes between FollowFile and the watch
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
				// Rewritten in place, perhaps line by line. Writes to other files of the folder, such
				// as a log, are ignored.
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
			// Usually an overflow of the queue: events are lost, so read the file.
			w.log.Warn("error while watching the endpoints file; reading it again", "file", w.file, "error", err)
			w.look(false)
		}
	}
}

// later reads the file again after d, and applies it even if it looks half written. Further events do not postpone it.
func (w *EndpointsFile) later(d time.Duration) {
	if !w.waiting {
		w.waiting = true
		w.settled.Reset(d)
	}
}

// look reads the file and applies it if it is complete, or if partial is set.
func (w *EndpointsFile) look(partial bool) {
	// The folder may have been replaced, which ends its watch. If it is still the same, this does nothing.
	_ = w.watcher.Add(filepath.Dir(w.file))
	data, err := os.ReadFile(w.file)
	if !partial && (err != nil || !bytes.HasSuffix(data, []byte("\n"))) {
		w.later(settleTime)
		return
	}
	if err != nil {
		if !w.lost {
			w.log.Error("cannot read endpoints file; keeping the previous list", "file", w.file, "error", err)
		}
		w.lost, w.last = true, nil
		w.later(lostTime)
		return
	}
	if w.lost {
		w.lost = false
		w.log.Info("endpoints file is readable again", "file", w.file)
	}
	if w.last != nil && bytes.Equal(data, w.last) {
		return
	}
	w.last = append([]byte{}, data...)
	addrs, err := ParseEndpoints(w.file, data)
	if err != nil {
		w.log.Error("invalid endpoints file; keeping the previous list", "error", err)
		w.g.Reloaded("endpoints", err)
		return
	}
	w.pool.Replace(addrs, w.speak, EndpointStates{Ready: len(addrs)})
	w.g.Reloaded("endpoints", nil)
}
