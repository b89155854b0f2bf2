package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Files is a certificate that something else keeps up, such as cert-manager.
type Files struct {
	Cert, Key string // PEM
	Log       *slog.Logger

	serving atomic.Pointer[tls.Certificate]
}

// Certificate is the one in force, for tls.Config.GetCertificate.
func (f *Files) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := f.serving.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate yet")
}

// Load reads both files. With an error, the certificate in force stays.
func (f *Files) Load() error {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return fmt.Errorf("read the certificate %s and its key %s: %w", f.Cert, f.Key, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("read the certificate %s: %w", f.Cert, err)
		}
	}
	f.serving.Store(&pair)
	return nil
}

// settle is how long after a change files are read: two cannot be written at once. A
// certificate and a key that do not fit yet are an error, and read again at the next
// change.
const settle = 100 * time.Millisecond

// Run reads the files anew when they change, until ctx ends. What is watched are their folders: a
// mounted Secret is a symbolic link that is replaced.
func (f *Files) Run(ctx context.Context, seen func(error)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the certificate: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	for _, folder := range []string{filepath.Dir(f.Cert), filepath.Dir(f.Key)} {
		if err := watcher.Add(folder); err != nil {
			return fmt.Errorf("watch the certificate's folder %s: %w", folder, err)
		}
	}
	load := func() {
		before := f.serving.Load()
		err := f.Load()
		switch now := f.serving.Load(); {
		case err != nil:
			f.Log.Error("the certificate cannot be read; the one in force still serves", "error", err)
		case before == nil || !before.Leaf.Equal(now.Leaf):
			f.Log.Info("a new certificate was read", "until", now.Leaf.NotAfter)
		}
		seen(err)
	}
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
