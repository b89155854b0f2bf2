package logs

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A FIFO is opened at once although nothing reads it. Its lines reach the reader
// that comes later, and the one after that.
func TestFIFOWithoutReader(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := New(file, DefaultBound)
	defer w.Close()
	for _, want := range []string{"before there is a reader\n", "after the reader has gone\n"} {
		_, _ = w.Write([]byte(want))
		in, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := bufio.NewReader(io.LimitReader(in, int64(len(want)))).ReadString('\n'); got != want {
			t.Errorf("the reader got %q, %v", got, err)
		}
		_ = in.Close()
	}
}

func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "log")
	for _, line := range []string{"one\n", "two\n"} { // appended
		file, err := OpenFile(name)
		if err != nil {
			t.Fatal(err)
		}
		w := New(file, DefaultBound)
		_, _ = w.Write([]byte(line))
		w.Close()
		_ = file.Close()
	}
	if got, err := os.ReadFile(name); string(got) != "one\ntwo\n" {
		t.Errorf("the file has %q, %v", got, err)
	}
	if _, err := OpenFile(filepath.Join(dir, "none", "log")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a folder that is not there: %v", err)
	}
}
