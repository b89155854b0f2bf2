package programtest

import (
	"errors"
	"os"
	"testing"
	"time"
)

// FullPipe is a pipe that takes no further byte: its reader has stalled.
func FullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	for _, size := range []int{4096, 1} {
		if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, err = w.Write(make([]byte, size))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	_ = w.Fd() // blocking for the program, as a container runtime's is
	return w
}
