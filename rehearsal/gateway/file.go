package gateway

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// Follow keeps the endpoints those of a file, one host:port on each line, until stop is called. A rename must replace the
// file, so that it is never read half written.
func (g *Gateway) Follow(file string) (stop func(), err error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch the endpoints file %s: %w", file, err)
	}
	if err := watcher.Add(filepath.Dir(file)); err != nil {
		_ = watcher.Close()
		return nil, fmt.Errorf("watch the folder of the endpoints file %s: %w", file, err)
	}
	if err := g.read(file); err != nil {
		_ = watcher.Close()
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = watcher.Close() }()
		for {
			select {
			case <-ctx.Done():
				return
			case <-watcher.Events:
			case err := <-watcher.Errors: // usually an overflow of the queue: events are lost
				g.log.Warn("error while watching the endpoints file; reading it again", "error", err)
			}
			if err := g.read(file); err != nil {
				g.log.Error("keeping the previous endpoints", "error", err)
			}
		}
	}()
	return func() { cancel(); <-done }, nil
}

// read sets the endpoints that the file names. If one of its lines is invalid, nothing changes.
func (g *Gateway) read(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read the endpoints file (it may be empty, but must exist): %w", err)
	}
	addresses := strings.Fields(string(data))
	for _, address := range addresses {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("%s: endpoint %q must be host:port: %w", file, address, err)
		}
	}
	g.SetEndpoints(addresses)
	return nil
}
