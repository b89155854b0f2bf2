package console

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	terminalPeriod = time.Second      // a terminal's line is rewritten this often at most
	logPeriod      = 10 * time.Second // a log gets a line this often
)

// Progress shows the state of something long: one line that is rewritten when it changes on a
// terminal, a line now and then elsewhere.
type Progress struct {
	f        *os.File
	terminal bool
	style    Style

	mu    sync.Mutex // guards what follows
	line  func() string
	drawn string // on the terminal

	done  chan struct{}
	ended sync.WaitGroup
}

// NewProgress starts to show line on f. End it.
func NewProgress(f *os.File, line func() string) *Progress {
	p := &Progress{f: f, terminal: IsTerminal(f), style: StyleFor(f), line: line, done: make(chan struct{})}
	p.ended.Go(p.run)
	return p
}

// Show replaces what is shown: at once on a terminal.
func (p *Progress) Show(line func() string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = line
	if p.terminal {
		p.draw()
	}
}

// End removes the line from a terminal.
func (p *Progress) End() {
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

// draw is called with mu held. A terminal's last column stays free: what is written there may
// wrap, and a wrapped line is no longer rewritten but repeated.
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

// Seconds writes a duration as people read it: "5.07 s".
func Seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// Round writes a setting: "5 s", "1.5 s", "250 ms".
func Round(d time.Duration) string {
	if d != 0 && d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", d.Seconds()), "0"), ".") + " s"
}
