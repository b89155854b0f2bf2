package certificate

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"time"
)

const (
	// lookInterval is the time between two looks at the files. Notifications by the kernel would be sooner, but a node's
	// sidecars share a limit of 128 watchers per user (fs.inotify.max_user_instances).
	lookInterval = time.Second

	// retryInterval is the time until refused files are read again: a certificate may have become valid.
	retryInterval = 10 * time.Second
)

// version changes with the content of the files, whose times are too coarse: two versions that are written within a
// tick of the kernel's clock (4 ms) have the same time, and often the same size.
func (f *Files) version() string {
	sum := sha256.New()
	for _, name := range []string{f.Cert, f.Key, f.ClientCA} {
		content, _ := os.ReadFile(name) // Reload reports the error
		fmt.Fprintln(sum, len(content))
		sum.Write(content)
	}
	return string(sum.Sum(nil))
}

// Run reads the files again when they change, until ctx ends; seen is called after each reading. Its error is nil.
func (f *Files) Run(ctx context.Context, seen func(error)) error {
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	version := "not read yet"
	var retryAt time.Time // of files that were refused; zero: they were not
	for {
		now := f.version() // before the reading: what is written meanwhile is read at the next look
		if now != version || !retryAt.IsZero() && !time.Now().Before(retryAt) {
			version, retryAt = now, time.Time{}
			err := f.Reload()
			if err != nil {
				retryAt = time.Now().Add(retryInterval)
			}
			seen(err)
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
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
