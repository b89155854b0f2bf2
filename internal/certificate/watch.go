package certificate

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long after a change files are read: two cannot be written at once. A
// certificate and a key that do not fit yet are an error, and read again at the next
// change.
const settle = 100 * time.Millisecond

// The files are read anew this often, in case a change was not told of, and where
// nothing can be watched: a node's sidecars share a limit of 128 watchers for each
// user (fs.inotify.max_user_instances).
const (
	readAnyway  = time.Hour
	readBlindly = 10 * time.Second
)

// watch has an eye on the files' folders: a mounted Secret is a symbolic link that is
// replaced.
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

// Run reads the files anew when they change, until ctx ends; seen is told of each
// reading. Its error is nil.
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
		f.Log.Warn("the certificate cannot be watched; it is read anew from time to time", "error", err, "interval", interval)
	}
	f.follow(ctx, events, problems, interval, seen)
	return nil
}

func (f *Files) follow(ctx context.Context, events <-chan fsnotify.Event, problems <-chan error, interval time.Duration, seen func(error)) {
	load := func() { seen(f.Reload()) }
	load() // it may have changed before it was watched
	late, isSoon := time.NewTimer(interval), false
	soon := func() { // other files of a busy folder put it off no further
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
			soon() // something may have been missed
		case <-late.C:
			load()
			isSoon = false
			late.Reset(interval)
		}
	}
}

// Reload is Load, told in the log: an error as long as it is another one than the
// last.
func (f *Files) Reload() error {
	changed, err := f.load()
	switch {
	case err != nil:
		if before := f.said.Swap(new(err.Error())); before != nil && *before == err.Error() {
			break // it has been told
		}
		f.Log.Error("the certificate cannot be read; the one in force still serves", "error", err)
	case changed:
		leaf := f.Leaf()
		f.Log.Info("a new certificate was read", "file", f.Cert, "subject", leaf.Subject.String(), "until", leaf.NotAfter)
		if err := Valid(leaf); err != nil {
			f.Log.Warn("the certificate in force is not valid", "file", f.Cert, "error", err)
		}
	}
	if err == nil {
		f.said.Store(nil)
	}
	return err
}
