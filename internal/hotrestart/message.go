package hotrestart

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// word is what a successor says to its predecessor beyond tableflip's one byte:
// its process number when it is ready, else the reason why it is not. It is a file
// in memory that both have open. A nil word says nothing.
type word struct{ file *os.File }

const wordName = "word"

// wordAtMost is the longest that is read, bytes.
const wordAtMost = 4096

func newWord() (*word, error) {
	fd, err := unix.MemfdCreate("lastcall-"+wordName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory for the successor's word: %w", err)
	}
	return &word{os.NewFile(uintptr(fd), wordName)}, nil
}

// clear forgets what the one before has said.
func (w *word) clear() error {
	if err := w.file.Truncate(0); err != nil {
		return fmt.Errorf("clear the successor's word: %w", err)
	}
	return nil
}

func (w *word) say(s string) {
	if w != nil {
		_, _ = w.file.WriteAt([]byte(s), 0) // who cannot be told finds it in the log
	}
}

func (w *word) read() string {
	b, _ := io.ReadAll(io.NewSectionReader(w.file, 0, wordAtMost))
	return string(b)
}

func readyWord(pid int) string { return fmt.Sprintf("ready %d", pid) }

// readyPid is 0 when s is something else.
func readyPid(s string) (pid int) {
	_, _ = fmt.Sscanf(s, "ready %d", &pid)
	return pid
}
