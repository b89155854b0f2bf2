package pipe

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

// secure is the TLS of a client's socket. Reading goes on in the poller's
// callback, as without: crypto/tls keeps what it has of a record when the
// connection below says that there is no more yet, and is asked again later.
type secure struct {
	s      *socket
	conn   *tls.Conn
	shaken atomic.Bool   // the handshake is over: send and receive may be called
	first  func()        // called with the first byte of the handshake
	fd     uintptr       // lent by the callback that reads
	more   atomic.Bool   // of the write under way
	reason error         // why reading has failed, as crypto/tls says it; of whoever reads
	ending atomic.Bool   // closeWrite has been called
	wr     sync.Mutex    // held by whoever writes; guards what follows
	broken bool          // a write has failed: what is out may end within a record
	ended  bool          // the FIN is out
	info   handshakeInfo // written before shaken
}

// handshakeInfo is what a handshake has told.
type handshakeInfo struct {
	version    string // "TLS 1.3"
	serverName string // SNI, as the client sent it
	alpn       string // empty: none
	peer       string // the subject of the client's certificate; empty without one
	resumed    bool
}

// newSecure puts TLS over a socket that nobody uses yet.
func newSecure(s *socket, config *tls.Config) {
	t := &secure{s: s}
	t.conn = tls.Server(wire{t}, config)
	s.secure = t
}

// isShaking says whether nothing can be said yet.
func (s *socket) isShaking() bool { return s.secure != nil && !s.secure.shaken.Load() }

// errHandshake is a write before the handshake is over.
var errHandshake = errors.New("the TLS handshake is not over")

// handshake waits for the client's part under the socket's deadlines.
func (t *secure) handshake() error {
	if err := t.conn.Handshake(); err != nil {
		return err
	}
	state := t.conn.ConnectionState()
	t.info = handshakeInfo{
		version:    tls.VersionName(state.Version),
		serverName: state.ServerName,
		alpn:       state.NegotiatedProtocol,
		resumed:    state.DidResume,
	}
	if len(state.PeerCertificates) > 0 {
		t.info.peer = state.PeerCertificates[0].Subject.String()
	}
	t.shaken.Store(true)
	return nil
}

func (t *secure) send(p []byte, more bool) error {
	if !t.shaken.Load() {
		return errHandshake
	}
	t.wr.Lock()
	t.more.Store(more)
	_, err := t.conn.Write(p)
	t.broken = t.broken || err != nil
	t.wr.Unlock()
	if t.ending.Load() {
		t.finish()
	}
	return err
}

// closeWrite says close_notify and sends the FIN with it. Who is within a write
// does it afterwards, and has a moment to get there: a client that takes nothing
// must not hold up whoever ends it.
func (t *secure) closeWrite() error {
	t.ending.Store(true)
	if !t.finish() {
		_ = t.s.SetWriteDeadline(time.Now().Add(lingerTime))
	}
	return nil
}

// finish ends what is sent. It returns false while somebody writes.
func (t *secure) finish() bool {
	if !t.wr.TryLock() {
		return false
	}
	defer t.wr.Unlock()
	if t.ended {
		return true
	}
	t.ended = true
	if t.shaken.Load() && !t.broken { // within a record it would not be understood
		_ = t.s.SetWriteDeadline(time.Now().Add(stuckTime))
		t.more.Store(true)
		_ = t.conn.CloseWrite()
	}
	_ = t.s.TCPConn.CloseWrite()
	return true
}

func (t *secure) receive(fd uintptr, p []byte) (int, syscall.Errno) {
	if !t.shaken.Load() {
		return 0, unix.ENOTCONN
	}
	t.fd = fd
	n, err := t.conn.Read(p)
	var errno syscall.Errno
	switch {
	case n > 0 || err == io.EOF: // an error comes again with the next call
		return n, 0
	case err == errNothingYet:
		return 0, unix.EAGAIN
	case errors.As(err, &errno):
		return 0, errno
	}
	t.reason = err
	return 0, unix.EBADMSG
}

// wire is the TCP connection as crypto/tls sees it: it waits during the handshake,
// and never while reading afterwards.
type wire struct{ *secure }

func (w wire) Read(p []byte) (int, error) {
	if !w.shaken.Load() {
		n, err := w.s.TCPConn.Read(p)
		if n > 0 && w.first != nil {
			w.first()
			w.first = nil
		}
		return n, err
	}
	n, errno := receive(w.fd, p)
	switch {
	case errno == unix.EAGAIN:
		return 0, errNothingYet
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write is called with the lock of crypto/tls held: never twice at once.
func (w wire) Write(p []byte) (int, error) {
	if err := w.s.write(p, w.more.Load()); err != nil {
		return len(p) - len(w.s.out), err
	}
	return len(p), nil
}

func (w wire) Close() error         { return w.s.TCPConn.Close() }
func (w wire) LocalAddr() net.Addr  { return w.s.TCPConn.LocalAddr() }
func (w wire) RemoteAddr() net.Addr { return w.s.TCPConn.RemoteAddr() }

// Deadlines are set on the socket, and not by crypto/tls, which would let each
// write after a close_notify time out.
func (w wire) SetDeadline(time.Time) error      { return nil }
func (w wire) SetReadDeadline(time.Time) error  { return nil }
func (w wire) SetWriteDeadline(time.Time) error { return nil }

// errNothingYet is EAGAIN in the form that crypto/tls takes for no end.
var errNothingYet net.Error = nothingYet{}

type nothingYet struct{}

func (nothingYet) Error() string   { return "nothing has come yet" }
func (nothingYet) Timeout() bool   { return true }
func (nothingYet) Temporary() bool { return true }
