package hotrestart

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// message is what a successor reports to its predecessor in addition to tableflip's one byte: its process number when
// it is ready, otherwise the reason why it is not. It is a file in memory that both processes have open. Writing to a
// nil message does nothing.
type message struct{ file *os.File }

const messageName = "message"

// maxMessage bounds what is read, bytes.
const maxMessage = 4096

func newMessage() (*message, error) {
	fd, err := unix.MemfdCreate("lastcall-"+messageName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a file in memory for the successor's message: %w", err)
	}
	return &message{os.NewFile(uintptr(fd), messageName)}, nil
}

// clear removes the previous successor's message.
func (m *message) clear() error {
	if err := m.file.Truncate(0); err != nil {
		return fmt.Errorf("clear the successor's message: %w", err)
	}
	return nil
}

func (m *message) write(s string) {
	if m != nil {
		_, _ = m.file.WriteAt([]byte(s), 0) // the log has it too
	}
}

func (m *message) read() string {
	b, _ := io.ReadAll(io.NewSectionReader(m.file, 0, maxMessage))
	return string(b)
}

func readyMessage(pid int) string { return fmt.Sprintf("ready %d", pid) }

// readyPID is 0 when the message is a reason.
func readyPID(s string) (pid int) {
	_, _ = fmt.Sscanf(s, "ready %d", &pid)
	return pid
}
