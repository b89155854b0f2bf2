package stream

import (
	"bufio"
	"bytes"
	"container/heap"
	"context"
	"crypto/sha1" //nolint:gosec // RFC 6455, 4.2.2
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Serve answers on the listener until ctx ends: GET /sse/N and /ws/N with a token each N µs until the client leaves,
// and all else with a small response.
func Serve(ctx context.Context, listener *net.TCPListener) error {
	file, err := listener.File()
	if err != nil {
		return fmt.Errorf("stream app: %w", err)
	}
	defer file.Close()
	p, err := newPoller()
	if err != nil {
		return fmt.Errorf("stream app: %w", err)
	}
	a := &app{poller: p, listener: int(file.Fd()), conns: map[int32]*appConn{}}
	defer a.close()
	if err := errors.Join(unix.SetNonblock(a.listener, true), p.add(a.listener)); err != nil {
		return fmt.Errorf("stream app: %w", err)
	}
	err = onThread(func() error { return a.run(ctx) })
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("stream app: %w", err)
}

// app is the loop's state.
type app struct {
	*poller
	listener int
	conns    map[int32]*appConn
	due      dueHeap
	streams  int // that there have been
}

// appConn is a connection of the app.
type appConn struct {
	fd      int
	kind    Kind // empty before the client requests a stream
	asked   []byte
	message []byte // the next token
	text    []byte // its part that changes
	number  int64
	due     int64 // nanoseconds since 1970
	every   int64
	at      int // in the heap; -1 outside
}

// longestWait bounds the time until the loop sees that its context has ended.
const longestWait = 50 * time.Millisecond

func (a *app) run(ctx context.Context) error {
	for ctx.Err() == nil {
		now := time.Now().UnixNano()
		for sent := 0; len(a.due) > 0 && a.due[0].due <= now && sent < 64; sent++ { // requests have their turn too
			a.send(a.due[0])
		}
		wait := longestWait
		if len(a.due) > 0 {
			wait = min(wait, time.Duration(a.due[0].due-time.Now().UnixNano()))
		}
		ready, err := a.wait(wait)
		if err != nil {
			return err
		}
		for _, event := range ready {
			if int(event.Fd) == a.listener {
				if err := a.accept(); err != nil {
					return err
				}
			} else if c := a.conns[event.Fd]; c != nil {
				a.receive(c)
			}
		}
	}
	return nil
}

// send sends the first token that is due. A client that does not read is left: its kernel's buffers hold minutes.
func (a *app) send(c *appConn) {
	putDigits(c.text[numberAt:numberAt+numbers], c.number)
	putDigits(c.text[dueAt:dueAt+dues], c.due)
	if n, err := unix.SendmsgN(c.fd, c.message, nil, nil, unix.MSG_NOSIGNAL); err != nil || n != len(c.message) {
		a.drop(c)
		return
	}
	c.number++
	c.due += c.every
	heap.Fix(&a.due, 0)
}

func (a *app) accept() error {
	for {
		fd, _, err := unix.Accept4(a.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			return fmt.Errorf("accept: %w", err)
		}
		a.conns[int32(fd)] = &appConn{fd: fd, at: -1}
		if err := errors.Join(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), a.add(fd)); err != nil {
			return fmt.Errorf("accept: %w", err)
		}
	}
}

// receive reads what a client sends. On a stream that is its end: a close frame, or a FIN.
func (a *app) receive(c *appConn) {
	var buf [2 << 10]byte
	n, err := unix.Read(c.fd, buf[:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err != nil, n == 0:
		a.drop(c)
		return
	case c.kind == WebSocket:
		if buf[0]&0xf == 8 { // answered, as RFC 6455, 5.5.1 asks
			_, _ = unix.Write(c.fd, []byte{0x88, 0})
			a.drop(c)
		}
		return
	case c.kind == SSE:
		return
	}
	c.asked = append(c.asked, buf[:n]...)
	for {
		end := bytes.Index(c.asked, []byte("\r\n\r\n"))
		if end < 0 && len(c.asked) < 8<<10 {
			return
		}
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(c.asked)))
		if err != nil {
			a.drop(c)
			return
		}
		c.asked = c.asked[end+4:]
		if err := a.answer(c, request); err != nil {
			a.drop(c)
			return
		}
	}
}

const smallBody = "{}\n"

func (a *app) answer(c *appConn, request *http.Request) error {
	kind, every, ok := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	microseconds, err := strconv.Atoi(every)
	var head string
	switch {
	case !ok || err != nil || microseconds <= 0:
		head = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(smallBody), smallBody)
	case Kind(kind) == SSE:
		// nginx passes on at once what this header asks for.
		head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n\r\n"
	case Kind(kind) == WebSocket && strings.EqualFold(request.Header.Get("Upgrade"), "websocket"):
		head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " +
			acceptKey(request.Header.Get("Sec-Websocket-Key")) + "\r\n\r\n"
	default:
		return fmt.Errorf("%s: no stream", request.URL.Path)
	}
	if _, err := unix.Write(c.fd, []byte(head)); err != nil || strings.HasSuffix(head, smallBody) {
		return err
	}
	c.kind, c.asked = Kind(kind), nil
	var at int
	c.message, at = c.kind.message()
	c.text = c.message[at:]
	c.every = int64(microseconds) * 1000
	// The streams' phases fill the interval evenly, however many there are: multiples of the golden ratio.
	a.streams++
	_, phase := modf(float64(a.streams) * 0.6180339887498949)
	c.due = time.Now().UnixNano() + int64(phase*float64(c.every))
	heap.Push(&a.due, c)
	return nil
}

func modf(x float64) (whole int64, part float64) {
	whole = int64(x)
	return whole, x - float64(whole)
}

// acceptKey is Sec-WebSocket-Accept (RFC 6455, 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // RFC 6455, 4.2.2
	return base64.StdEncoding.EncodeToString(sum[:])
}

func (a *app) drop(c *appConn) {
	if c.at >= 0 {
		heap.Remove(&a.due, c.at)
	}
	delete(a.conns, int32(c.fd))
	_ = unix.Close(c.fd)
}

func (a *app) close() {
	for _, c := range a.conns {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(a.fd)
}

// dueHeap has the streams; the first is due first.
type dueHeap []*appConn

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].at, h[j].at = i, j }

// Push appends a stream.
func (h *dueHeap) Push(c any) {
	c.(*appConn).at = len(*h)
	*h = append(*h, c.(*appConn))
}

// Pop removes the last one.
func (h *dueHeap) Pop() any {
	c := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	c.at = -1
	return c
}
