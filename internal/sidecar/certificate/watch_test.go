package certificate

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
)

// Files are read again when they change and, while they are refused, at intervals; what is wrong with them is logged once.
func TestFilesAreFollowed(t *testing.T) {
	authority := certificatetest.New(t)
	secret := certificatetest.NewSecret(t)
	synctest.Test(t, func(t *testing.T) {
		// In a bubble it is the year 2000, and each certificate as invalid as the others.
		secret.Write(authority.Sign("one", 0), nil)
		var log bytes.Buffer
		f := &Files{Cert: secret.Cert(), Key: secret.Key(), Log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := f.Load(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		readings := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = f.Run(ctx, func(error) { readings++ })
		}()
		synctest.Wait()
		two := authority.Sign("two", 0)
		secret.Write(two, nil)
		time.Sleep(lookInterval)
		synctest.Wait()
		if !f.Leaf().Equal(two.Leaf) {
			t.Errorf("%s is in force", f.Leaf().Subject)
		}
		if err := os.Remove(secret.Key()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookInterval + 5*retryInterval)
		synctest.Wait()
		cancel()
		<-done
		if n := strings.Count(log.String(), "cannot load the certificate"); n != 1 || readings != 8 || !f.Leaf().Equal(two.Leaf) {
			t.Errorf("logged %d times in %d readings: %s", n, readings, log.String())
		}
	})
}
