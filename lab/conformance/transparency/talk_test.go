package transparency

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// talk is one side of a connection, of which the test has every byte.
type talk struct {
	conn  *net.TCPConn
	r     *bufio.Reader
	got   bytes.Buffer // all that was received
	end   string       // of what was received: FIN, RST, or open
	heads func(string) // gets each request line
	last  *http.Request
}

// step is one thing that a side does. An error ends the conversation.
type step func(*talk) error

var errAgain = errors.New("from the beginning")

// converse does the steps and then closes the connection, unless they have.
func converse(c net.Conn, heads func(string), steps []step) *talk {
	t := &talk{conn: c.(*net.TCPConn), heads: heads}
	t.r = bufio.NewReaderSize(io.TeeReader(c, &t.got), 64<<10)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(limit))
	for i := 0; i < len(steps); i++ {
		err := steps[i](t)
		if errors.Is(err, errAgain) {
			i = -1
		} else if err != nil {
			t.ended(err)
			break
		}
	}
	return t
}

// ended notes how the other side ended.
func (t *talk) ended(err error) {
	switch {
	case t.end != "":
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		t.end = "FIN"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		t.end = "RST"
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.end = "open"
	default:
		t.end = strings.ReplaceAll(err.Error(), " ", "_")
	}
}

var dates = regexp.MustCompile(`(?i)(date|etag|last-modified): [^\r\n]*`)

func (t *talk) String() string {
	data := dates.ReplaceAll(t.got.Bytes(), []byte("$1: -"))
	if len(data) > 400 {
		return fmt.Sprintf("%d:%08x,%s", len(data), crc32.ChecksumIEEE(data), t.end)
	}
	return fmt.Sprintf("%q,%s", data, t.end)
}

func send(text string) step {
	return func(t *talk) error { _, err := io.WriteString(t.conn, text); return err }
}

// bytesOf sends n bytes.
func bytesOf(n int) step {
	return func(t *talk) error { _, err := t.conn.Write(bytes.Repeat([]byte("x"), n)); return err }
}

// head reads the head of a request or response.
func head(t *talk) error {
	var lines []string
	_ = t.conn.SetDeadline(time.Now().Add(3 * time.Second)) // before the client's own limit
	for {
		line, err := t.r.ReadString('\n')
		if err != nil {
			return err
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" && len(lines) > 0 {
			break
		}
		lines = append(lines, line)
	}
	if t.heads != nil {
		t.heads(lines[0])
	}
	t.last, _ = http.ReadRequest(bufio.NewReader(strings.NewReader(strings.Join(lines, "\r\n") + "\r\n\r\n")))
	return nil
}

// body reads the body that the head announced, and nothing of the next request.
func body(t *talk) error {
	if t.last.ContentLength >= 0 {
		_, err := io.CopyN(io.Discard, t.r, t.last.ContentLength)
		return err
	}
	if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(t.r)); err != nil {
		return err
	}
	_, err := t.r.ReadString('\n') // no client here sends trailers
	return err
}

// read reads n bytes.
func read(n int) step {
	return func(t *talk) error { _, err := io.CopyN(io.Discard, t.r, int64(n)); return err }
}

// rest reads to the end, for at most some seconds.
func rest(t *talk) error {
	_ = t.conn.SetReadDeadline(time.Now().Add(3 * time.Second))
	_, err := io.Copy(io.Discard, t.r)
	if err == nil {
		err = io.EOF
	}
	t.ended(err)
	return nil
}

func fin(t *talk) error { return t.conn.CloseWrite() }

// shut closes the connection: unread bytes make it a reset.
func shut(t *talk) error { return t.conn.Close() }

func reset(t *talk) error {
	_ = t.conn.SetLinger(0)
	return t.conn.Close()
}

// urgent sends a byte of urgent data, which inLine lets the other side read as any other.
func urgent(t *talk) error {
	return t.control(func(fd int) error { return unix.Sendto(fd, []byte("!"), unix.MSG_OOB, nil) })
}

func inLine(t *talk) error {
	return t.control(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) })
}

func (t *talk) control(f func(fd int) error) error {
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) { err = f(int(fd)) }), err)
}

// pause is part of the behaviour: what one side does a while after another thing.
func pause(d time.Duration) step {
	return func(*talk) error { time.Sleep(d); return nil }
}

func again(*talk) error { return errAgain }
