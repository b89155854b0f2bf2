package console

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

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

// Cut shortens text to width columns.
func Cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:width-1]), " ,") + "…"
}

// Millis formats measured milliseconds as terminal.Measured does: "5.07 s".
func Millis(ms float64) string { return fmt.Sprintf("%.2f s", ms/1000) }

// Answer is a response's status, and after how many milliseconds it was complete or ended early; status 0 is none.
func Answer(status int, isCut bool, tookMS float64) string {
	took := Right(Millis(tookMS), 8)
	switch {
	case status == 0:
		return "none after" + took
	case isCut:
		return fmt.Sprintf("%d cut at%s", status, took)
	}
	return fmt.Sprintf("%d after%s", status, took)
}

// Lag is how many milliseconds something came too late; negative is unknown.
func Lag(ms float64) string {
	switch {
	case ms < 0:
		return "-"
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return Millis(ms)
}
