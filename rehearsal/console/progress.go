package console

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

const (
	terminalPeriod = time.Second      // the shortest time between two rewrites of a terminal's line
	logPeriod      = 10 * time.Second // between two lines elsewhere
)

// Progress shows the state of a long operation: one line that is rewritten when it changes on a terminal, and a line
// every ten seconds elsewhere. A nil Progress shows nothing.
type Progress struct {
	f        *os.File
	terminal bool
	style    Style

	mu    sync.Mutex // guards the fields below
	line  func() string
	drawn string // on the terminal

	done  chan struct{}
	ended sync.WaitGroup
}

// NewProgress starts to show line on f, until End; nil if there is no file.
func NewProgress(f *os.File, line func() string) *Progress {
	if f == nil {
		return nil
	}
	p := &Progress{f: f, terminal: terminal.Is(f), style: StyleFor(f), line: line, done: make(chan struct{})}
	p.ended.Go(p.run)
	return p
}

// Show replaces the line: at once on a terminal.
func (p *Progress) Show(line func() string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = line
	if p.terminal {
		p.draw()
	}
}

// End removes the line from a terminal.
func (p *Progress) End() {
	if p == nil {
		return
	}
	close(p.done)
	p.ended.Wait()
	if p.terminal {
		_, _ = fmt.Fprint(p.f, "\r\x1b[K")
	}
}

func (p *Progress) run() {
	period := logPeriod
	if p.terminal {
		period = terminalPeriod
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		case <-p.done:
			return
		}
	}
}

// draw is called with mu held. The terminal's last column stays free: text in it may wrap, and a wrapped line would be
// repeated instead of rewritten.
func (p *Progress) draw() {
	text := p.line()
	if !p.terminal {
		_, _ = fmt.Fprintln(p.f, Cut(text, Width))
		return
	}
	if text = Cut(text, max(1, Columns(p.f)-1)); text == p.drawn {
		return
	}
	p.drawn = text
	_, _ = fmt.Fprint(p.f, "\r", p.style.Dim(text), "\x1b[K")
}
