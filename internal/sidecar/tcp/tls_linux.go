package tcp

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// notifyTime bounds the write of a close_notify to a client that does not read.
	notifyTime = 20 * time.Millisecond
	// writeTime bounds a write that is in progress when the connection ends.
	writeTime = time.Second
)

// tlsLayer terminates TLS on a socket. Reads still happen in the poller's callback: crypto/tls keeps an incomplete
// record when the connection below reports a timeout, and is called again later.
type tlsLayer struct {
	s        *Socket
	conn     *tls.Conn
	isDone   atomic.Bool                           // the handshake is done: send and receive may be called
	progress func(received int, isFirst bool) bool // called for each part of the client's handshake
	received int                                   // bytes of the handshake
	record   recordFollower
	fd       uintptr     // from the callback that reads
	more     atomic.Bool // of the write in progress
	isEnding atomic.Bool // closeWrite has been called
	writing  sync.Mutex  // held during writes; guards the fields below
	broken   bool        // a write has failed: the output may end within a record
	hasEnded bool        // the FIN has been sent
	info     TLSInfo     // written before isDone
}

// TLSInfo is the information in a TLS handshake or a ClientHello. Its JSON is part of /connections.
type TLSInfo struct {
	Version    string `json:"version,omitempty"`      // "TLS 1.3"; empty: it passes through
	ServerName string `json:"server_name,omitempty"`  // SNI, as the client sent it
	ALPN       string `json:"alpn,omitempty"`         // empty: none
	Peer       string `json:"peer_subject,omitempty"` // the subject of the client's certificate; empty without one
	Resumed    bool   `json:"-"`
}

// Terminate puts TLS on an unused socket. Handshake must follow. progress is called when a part of the client's has
// come, with the number of its bytes so far; it returns false to end the handshake.
func (s *Socket) Terminate(config *tls.Config, progress func(received int, isFirst bool) bool) {
	t := &tlsLayer{s: s, progress: progress}
	t.conn = tls.Server(wire{t}, config)
	s.tls = t
}

// IsHandshaking reports whether nothing can be sent or received yet.
func (s *Socket) IsHandshaking() bool { return s.tls != nil && !s.tls.isDone.Load() }

// Handshake waits for the client's part under the socket's deadlines. silent means that the client has not sent a byte.
func (s *Socket) Handshake() (info *TLSInfo, silent bool, err error) {
	t := s.tls
	if err := t.conn.Handshake(); err != nil {
		return nil, t.received == 0, err
	}
	state := t.conn.ConnectionState()
	t.info = TLSInfo{
		Version:    tls.VersionName(state.Version),
		ServerName: state.ServerName,
		ALPN:       state.NegotiatedProtocol,
		Resumed:    state.DidResume,
	}
	if len(state.PeerCertificates) > 0 {
		t.info.Peer = state.PeerCertificates[0].Subject.String()
	}
	t.isDone.Store(true)
	return &t.info, false, nil
}

// Held is about how many bytes crypto/tls holds of a record that is not complete.
func (s *Socket) Held() int {
	if s.tls != nil && s.tls.isDone.Load() && (s.tls.record.left > 0 || s.tls.record.have > 0) {
		return recordMemory
	}
	return 0
}

const recordMemory = 17 << 10

var errRefused = errors.New("handshake refused")

// errHandshake is a write before the handshake is done.
var errHandshake = errors.New("TLS handshake in progress")

func (t *tlsLayer) send(p []byte, more bool) error {
	if !t.isDone.Load() {
		return errHandshake
	}
	t.writing.Lock()
	t.more.Store(more)
	_, err := t.conn.Write(p)
	t.broken = t.broken || err != nil
	t.writing.Unlock()
	if t.isEnding.Load() {
		t.finish()
	}
	return err
}

// closeWrite sends close_notify and the FIN. If a write is in progress, the writer sends them afterwards, and has
// writeTime to get there: a client that does not read must not block the caller.
func (t *tlsLayer) closeWrite() error {
	t.isEnding.Store(true)
	if !t.finish() {
		_ = t.s.SetWriteDeadline(time.Now().Add(writeTime))
	}
	return nil
}

// finish ends the output. It returns false while a write is in progress.
func (t *tlsLayer) finish() bool {
	if !t.writing.TryLock() {
		return false
	}
	defer t.writing.Unlock()
	if t.hasEnded {
		return true
	}
	t.hasEnded = true
	if t.isDone.Load() && !t.broken { // an alert within a record would not be understood
		_ = t.s.SetWriteDeadline(time.Now().Add(notifyTime))
		t.more.Store(true)
		_ = t.conn.CloseWrite()
	}
	_ = t.s.shutdown(unix.SHUT_WR)
	return true
}

func (t *tlsLayer) receive(fd uintptr, p []byte) (int, syscall.Errno) {
	if !t.isDone.Load() {
		return 0, unix.ENOTCONN
	}
	t.fd = fd
	n, err := t.conn.Read(p)
	var errno syscall.Errno
	switch {
	case n > 0 || errors.Is(err, io.EOF): // an error is returned again by the next call
		return n, 0
	case errors.Is(err, errNotReady):
		return 0, unix.EAGAIN
	case errors.As(err, &errno):
		return 0, errno
	}
	return 0, unix.EBADMSG
}

// wire is the TCP connection below crypto/tls: reads block during the handshake and never afterwards.
type wire struct{ *tlsLayer }

func (w wire) Read(p []byte) (int, error) {
	if !w.isDone.Load() {
		n, err := w.s.Read(p)
		isFirst := w.received == 0
		w.received += n
		w.record.follow(p[:n])
		if n > 0 && !w.progress(w.received, isFirst) {
			return 0, errRefused
		}
		return n, err
	}
	n, errno := receive(w.fd, p)
	switch {
	case errno == unix.EAGAIN:
		return 0, errNotReady
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	w.record.follow(p[:n])
	return n, nil
}

// recordFollower follows where TLS records end (RFC 8446, 5.1).
type recordFollower struct {
	header [5]byte // of the next record
	have   int     // bytes of it
	left   int     // bytes of the record after it
}

func (f *recordFollower) follow(p []byte) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, len(p))
			f.left, p = f.left-n, p[n:]
			continue
		}
		n := copy(f.header[f.have:], p)
		if f.have, p = f.have+n, p[n:]; f.have == len(f.header) {
			f.have, f.left = 0, int(f.header[3])<<8|int(f.header[4])
		}
	}
}

// Write is called under a lock of crypto/tls: never concurrently.
func (w wire) Write(p []byte) (int, error) {
	err := w.s.SendClear(p, w.more.Load())
	return len(p) - len(w.s.out.left), err
}

func (w wire) Close() error         { return w.s.CloseClear() }
func (w wire) LocalAddr() net.Addr  { return w.s.LocalAddr() }
func (w wire) RemoteAddr() net.Addr { return w.s.RemoteAddr() }

// Deadlines are set on the socket, not by crypto/tls, which lets each write after a close_notify time out.
func (w wire) SetDeadline(time.Time) error      { return nil }
func (w wire) SetReadDeadline(time.Time) error  { return nil }
func (w wire) SetWriteDeadline(time.Time) error { return nil }

// errNotReady is EAGAIN in the form that crypto/tls does not regard as the end.
var errNotReady net.Error = notReady{}

type notReady struct{}

func (notReady) Error() string   { return "no data yet" }
func (notReady) Timeout() bool   { return true }
func (notReady) Temporary() bool { return true }
