package certificate

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is the delay from a change to the reading: two files cannot be written at once. A certificate and a key that
// do not match yet are an error, and read again at the next change.
const settle = 100 * time.Millisecond

// The interval for reading the files without a notification: one may be lost, and watching may be impossible, since a
// node's sidecars share a limit of 128 watchers per user (fs.inotify.max_user_instances).
const (
	readAnyway  = time.Hour
	readBlindly = 10 * time.Second
)

// watch watches the files' folders: a mounted Secret is a symbolic link that is replaced.
func (f *Files) watch() (*fsnotify.Watcher, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch the certificate: %w", err)
	}
	folders := []string{filepath.Dir(f.Cert), filepath.Dir(f.Key)}
	if f.ClientCA != "" {
		folders = append(folders, filepath.Dir(f.ClientCA))
	}
	slices.Sort(folders)
	for _, folder := range slices.Compact(folders) {
		if err := watcher.Add(folder); err != nil {
			_ = watcher.Close()
			return nil, fmt.Errorf("watch the certificate's folder %s: %w", folder, err)
		}
	}
	return watcher, nil
}

// Run reads the files again when they change, until ctx ends; seen is called after each reading. Its error is nil.
func (f *Files) Run(ctx context.Context, seen func(error)) error {
	interval := readAnyway
	var events chan fsnotify.Event
	var problems chan error
	watcher, err := f.watch()
	if err == nil {
		defer func() { _ = watcher.Close() }()
		events, problems = watcher.Events, watcher.Errors
	} else {
		interval = readBlindly
		f.Log.Warn("cannot watch the certificate; reading it at intervals", "error", err, "interval", interval)
	}
	f.follow(ctx, events, problems, interval, seen)
	return nil
}

func (f *Files) follow(ctx context.Context, events <-chan fsnotify.Event, problems <-chan error,
	interval time.Duration, seen func(error)) {
	load := func() { seen(f.Reload()) }
	load() // it may have changed before the watch began
	late, isSoon := time.NewTimer(interval), false
	soon := func() { // changes of other files in the folder do not delay it further
		if !isSoon {
			isSoon = true
			late.Reset(settle)
		}
	}
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			soon()
		case err := <-problems:
			f.Log.Warn("watching the certificate", "error", err)
			soon() // a notification may be lost
		case <-late.C:
			load()
			isSoon = false
			late.Reset(interval)
		}
	}
}

// Reload is Load with log lines: an error is logged when it differs from the previous one.
func (f *Files) Reload() error {
	changed, err := f.load()
	switch {
	case err != nil:
		if before := f.lastError.Swap(new(err.Error())); before != nil && *before == err.Error() {
			break // logged already
		}
		f.Log.Error("cannot load the certificate; the current one stays in use", "error", err)
	case changed:
		leaf := f.Leaf()
		f.Log.Info("certificate loaded", "file", f.Cert, "subject", leaf.Subject.String(), "until", leaf.NotAfter)
		if err := Valid(leaf); err != nil {
			f.Log.Warn("the current certificate is not valid", "file", f.Cert, "error", err)
		}
	}
	if err == nil {
		f.lastError.Store(nil)
	}
	return err
}
