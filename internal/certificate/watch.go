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

// Run reads the files anew when they change, until ctx ends; seen is told of each
// reading. What is watched are their folders: a mounted Secret is a symbolic link
// that is replaced.
func (f *Files) Run(ctx context.Context, seen func(error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the certificate: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	folders := []string{filepath.Dir(f.Cert), filepath.Dir(f.Key)}
	if f.ClientCA != "" {
		folders = append(folders, filepath.Dir(f.ClientCA))
	}
	slices.Sort(folders)
	for _, folder := range slices.Compact(folders) {
		if err := watcher.Add(folder); err != nil {
			return fmt.Errorf("watch the certificate's folder %s: %w", folder, err)
		}
	}
	load := func() { seen(f.Reload()) }
	load() // it may have changed before it was watched
	late, isSoon := time.NewTimer(time.Hour), false
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
			return nil
		case <-watcher.Events:
			soon()
		case err := <-watcher.Errors:
			f.Log.Warn("watching the certificate", "error", err)
			soon() // something may have been missed
		case <-late.C:
			load()
			isSoon = false
			late.Reset(time.Hour) // in case a change was not told of
		}
	}
}

// Reload is Load, told in the log.
func (f *Files) Reload() error {
	changed, err := f.load()
	switch {
	case err != nil:
		f.Log.Error("the certificate cannot be read; the one in force still serves", "error", err)
	case changed:
		leaf := f.Leaf()
		f.Log.Info("a new certificate was read", "file", f.Cert, "subject", leaf.Subject.String(), "until", leaf.NotAfter)
		if err := Valid(leaf); err != nil {
			f.Log.Warn("the certificate in force is not valid", "file", f.Cert, "error", err)
		}
	}
	return err
}
