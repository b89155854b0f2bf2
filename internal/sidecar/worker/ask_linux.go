package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
)

// answer is a signal's report of its worker.
type answer struct {
	isIdle bool
	detail string // its report of the work in progress; a change of it shows that the worker is alive
	err    error  // it does not answer
}

const (
	askTime  = 30 * time.Second // for one run of a command, which may start an interpreter on a busy node
	longPoll = 10 * time.Second // RFC 7240's Prefer: wait, for a server that answers as soon as its state changes
	pollTime = longPoll + 5*time.Second

	maxPage   = 4 << 20 // of metrics, bytes
	maxOutput = 4 << 10 // of a command, and of an HTTP answer
	maxDetail = 100

	firstPause = 100 * time.Millisecond
	lastPause  = time.Second
	maxPause   = 5 * time.Second
	costShare  = 4 // pauses after an answer that cost time: a fifth of the time at most is spent on asking

	// fileLook is how often a file is looked at. inotify would save 50 ms on average: its instances are limited to 128 per
	// user of the node, and network filesystems report nothing.
	fileLook = 100 * time.Millisecond

	// settleTime is how long a connection to a unix socket must stay open to be busy: an idle worker closes it at once.
	settleTime = 200 * time.Millisecond
)

// follow reports each answer of a signal until ctx ends.
func (s Signal) follow(ctx context.Context, report func(answer)) {
	if s.kind == "unix" {
		s.followUnix(ctx, report)
		return
	}
	backoff := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		a := s.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		report(a)
		pause := min(max(backoff, costShare*time.Since(began)), maxPause)
		switch backoff = min(2*backoff, lastPause); {
		case s.kind == "file":
			pause = fileLook
		case s.kind == "http" && a.err == nil && time.Since(began) > lastPause:
			pause, backoff = 0, firstPause // a long poll
		}
		_ = poll.Pause(ctx, pause)
	}
}

func (s Signal) ask(ctx context.Context) answer {
	switch s.kind {
	case "exec":
		return s.askCommand(ctx)
	case "file":
		return s.askFile()
	}
	ctx, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	header, limit := http.Header{"User-Agent": {"lastcall"}}, int64(maxPage)
	if s.kind == "http" {
		header.Set("Prefer", fmt.Sprintf("wait=%d", longPoll/time.Second))
		limit = maxOutput
	}
	code, body, err := probe.Fetch(ctx, s.url, header, probe.DialFromSource, limit)
	isOK := code >= http.StatusOK && code < http.StatusMultipleChoices
	switch {
	case err != nil:
		return answer{err: err}
	case s.kind == "http" && (isOK || code == http.StatusServiceUnavailable):
		return answer{isIdle: isOK, detail: detailOf(body)}
	case !isOK:
		return answer{err: fmt.Errorf("status %d: must be 2xx for idle or 503 for busy", code)}
	}
	isMet, sum, err := s.metric.check(string(body))
	return answer{isIdle: isMet, detail: strconv.FormatFloat(sum, 'g', -1, 64), err: err}
}

// maxBusy is the largest exit code that means busy. Shells use the larger ones for commands that they cannot run, and
// for signals.
const maxBusy = 125

func (s Signal) askCommand(ctx context.Context) answer {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	out := &bounded{}
	c := exec.CommandContext(ctx, s.command[0], s.command[1:]...) //nolint:gosec // from the manifest
	c.Stdout, c.Stderr = out, out
	c.WaitDelay = 100 * time.Millisecond                // for a descendant that keeps the output open
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its children end with it
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	err := c.Start()
	if err == nil {
		// Its number is its own until Wait: what it leaves in its group ends with it.
		//nolint:revive // again
		for unix.Waitid(unix.P_PID, c.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
		_ = c.Cancel()
		err = c.Wait()
	}
	var exit *exec.ExitError
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay):
		return answer{isIdle: true}
	case ctx.Err() != nil:
		return answer{err: fmt.Errorf("the command has not ended after %v", askTime)}
	case errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() <= maxBusy:
		return answer{detail: detailOf(out.kept.Bytes())}
	}
	return answer{err: fmt.Errorf("%w: %s", err, detailOf(out.kept.Bytes()))}
}

// bounded keeps the beginning of the written bytes.
type bounded struct{ kept bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), maxOutput-b.kept.Len())])
	return len(p), nil
}

// detailOf is the first line of a text.
func detailOf(text []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(text), []byte("\n"))
	return strings.ToValidUTF8(string(line[:min(len(line), maxDetail)]), "")
}

// askFile looks at the file. Its time of modification is the detail, so that a worker can show that it is alive.
func (s Signal) askFile() answer {
	info, err := os.Stat(s.path)
	switch {
	case err == nil:
		return answer{isIdle: !s.absent, detail: "modified " + info.ModTime().UTC().Format(time.RFC3339Nano)}
	case errors.Is(err, fs.ErrNotExist):
		return answer{isIdle: s.absent}
	}
	return answer{err: err}
}

// followUnix holds a connection to the worker's socket. The worker keeps it open while it is busy, may write a line
// about its work at any time, and closes it when it is idle; the kernel closes it when the worker has ended.
func (s Signal) followUnix(ctx context.Context, report func(answer)) {
	for wasIdle := false; ctx.Err() == nil; _ = poll.Pause(ctx, fileLook) {
		conn, err := (&net.Dialer{Timeout: askTime}).DialContext(ctx, "unix", s.path)
		if err != nil {
			if !wasIdle { // else it has ended while it was idle
				report(answer{err: err})
			}
			continue
		}
		unblock := context.AfterFunc(ctx, func() { _ = conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(settleTime))
		var line [maxOutput]byte
		for {
			n, err := conn.Read(line[:])
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			report(answer{detail: detailOf(line[:n])})
			_ = conn.SetReadDeadline(time.Time{})
		}
		unblock()
		_ = conn.Close()
		if wasIdle = ctx.Err() == nil; wasIdle {
			report(answer{isIdle: true})
		}
	}
}
