package logs

import (
	"bytes"
	"sync"
)

// Lines is an io.Writer for the output of another program, which arrives in pieces of any size: complete lines reach
// the Writer, so that the Writer's own lines are not mixed with them.
type Lines struct {
	to   *Writer
	mu   sync.Mutex
	part []byte // of an incomplete line
}

// NewLines forwards lines to a Writer.
func NewLines(to *Writer) *Lines { return &Lines{to: to} }

// Write never fails and never blocks. A line above a Writer's limit continues in pieces.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		isWhole := end > 0
		if !isWhole {
			end = len(rest)
		}
		if room := maxLine - len(l.part); end > room {
			end, isWhole = room, false
		}
		l.part, rest = append(l.part, rest[:end]...), rest[end:]
		if !isWhole && len(l.part) < maxLine {
			break
		}
		if !isWhole {
			l.part = append(l.part, '\n')
		}
		_, _ = l.to.Write(l.part)
		l.part = l.part[:0]
	}
	return len(p), nil
}
