package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

const patience = 10 * time.Second

func accepting(t *testing.T, address string) *Listener {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip(err)
	}
	l, err := Accepting(ln.(*net.TCPListener), 20*time.Second)
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// pair is a connection: the end that was accepted and the one that was dialled.
func pair(t *testing.T, address string) (accepted, dialled *Socket) {
	t.Helper()
	l := accepting(t, address)
	dialled, err := Dial(t.Context(), l.Addr().String(), Patience{Most: patience})
	must.Do(t, err)
	c, err := l.Accept()
	must.Do(t, err)
	accepted = c.(*Socket)
	t.Cleanup(func() { _, _ = accepted.Close(), dialled.Close() })
	return accepted, dialled
}

func TestDial(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "[::]:0"} {
		accepted, dialled := pair(t, address)
		if a, b := accepted.RemoteAddr().String(), dialled.LocalAddr().String(); a != b {
			t.Errorf("%s: accepted from %s, dialled from %s", address, a, b)
		}
		if a, b := accepted.LocalAddr().(*net.TCPAddr).Port, dialled.RemoteAddr().(*net.TCPAddr).Port; a != b {
			t.Errorf("%s: accepted at port %d, dialled to port %d", address, a, b)
		}
	}
	_, port, _ := net.SplitHostPort(accepting(t, "127.0.0.1:0").Addr().String())
	for _, host := range []string{"localhost", ""} {
		s, err := Dial(t.Context(), net.JoinHostPort(host, port), Patience{Most: patience})
		if err != nil {
			t.Errorf("host %q: %v", host, err)
			continue
		}
		_ = s.Close()
	}
}

func TestDialFails(t *testing.T) {
	refuses := nettest.FreeAddress(t, "127.0.0.1")
	_, err := Dial(t.Context(), refuses, Patience{Most: patience})
	if want := "dial tcp " + refuses + ": connect: connection refused"; err == nil || err.Error() != want || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v; want %s", err, want)
	}
	for _, address := range []string{"127.0.0.1", "127.0.0.1:nosuchservice", "no.such.host.invalid:80"} {
		if _, err := Dial(t.Context(), address, Patience{Most: patience}); err == nil {
			t.Errorf("%s: no error", address)
		}
	}

	silent := full(t)
	began := time.Now()
	if _, err := Dial(t.Context(), silent, Patience{Most: 50 * time.Millisecond}); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) < 50*time.Millisecond {
		t.Errorf("after %v without an answer: %v", time.Since(began), err)
	}
	left := false
	gone := Patience{Most: patience, Gone: func() bool { defer func() { left = true }(); return left }}
	if _, err := Dial(t.Context(), silent, gone); !errors.Is(err, os.ErrDeadlineExceeded) || !left {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := Dial(ctx, silent, Patience{Most: patience}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Dial(ctx, silent, Patience{Most: patience}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before: %v", err)
	}
}

// full is the address of a listener that answers no more clients: its queue is full.
func full(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must.Do(t, errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)))
	at, err := unix.Getsockname(fd)
	must.Do(t, err)
	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at.(*unix.SockaddrInet4).Port}).String()
	for range 10 {
		c, err := net.DialTimeout("tcp", address, time.Second/2)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Fatal("the queue does not become full")
	return ""
}

// Accepted sockets have the listener's options.
func TestAcceptedOptions(t *testing.T) {
	accepted, dialled := pair(t, "127.0.0.1:0")
	dialled.SetNoDelay()
	for _, row := range []struct {
		s                   *Socket
		level, option, want int
	}{
		{accepted, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{accepted, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{accepted, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 20},
		{accepted, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 20},
		{accepted, unix.IPPROTO_TCP, unix.TCP_KEEPCNT, keepAliveProbes},
		{dialled, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
	} {
		if err := row.s.control(func(fd int) {
			if got, err := unix.GetsockoptInt(fd, row.level, row.option); err != nil || got != row.want {
				t.Errorf("option %d of level %d is %d, %v; want %d", row.option, row.level, got, err, row.want)
			}
		}); err != nil {
			t.Error(err)
		}
	}
}

// Deadlines and Wake hold also if they come before the socket has waited for anything.
func TestDeadlinesBeforePolling(t *testing.T) {
	s, _ := pair(t, "127.0.0.1:0")
	_ = s.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || s.WasWoken(err) {
		t.Error(err)
	}
	s, _ = pair(t, "127.0.0.1:0")
	s.Wake()
	if _, err := s.Read(make([]byte, 1)); !s.WasWoken(err) {
		t.Error(err)
	}
	s, peer := pair(t, "127.0.0.1:0")
	_ = s.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := s.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	_ = peer.SetLinger(0)
	_ = peer.Close()
	_ = s.SetDeadline(time.Time{})
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	_ = s.Close()
	for _, err := range []error{s.Close(), s.CloseWrite(), s.Send([]byte("x"), false), s.WhenReadable(func(uintptr) bool { return false })} {
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
}

// Splice moves exactly the requested number of bytes, and returns io.EOF if there are fewer.
func TestSplice(t *testing.T) {
	const size, more = 9<<20 + 17, 1000
	from, source := pair(t, "127.0.0.1:0")
	target, to := pair(t, "127.0.0.1:0")
	sent := bytes.Repeat([]byte("0123456789abcdef-"), (size+more)/17+1)[:size+more]
	go func() {
		_, _ = source.Write(sent)
		_ = source.CloseWrite()
	}()
	result := make(chan error, 2)
	go func() {
		moved, err := Splice(to, from, size)
		if err == nil && moved != size {
			t.Errorf("%d bytes were moved", moved)
		}
		result <- err
		moved, err = Splice(to, from, size)
		if moved != more {
			t.Errorf("%d bytes were moved after that", moved)
		}
		result <- err
		_ = to.CloseWrite()
	}()
	got, err := io.ReadAll(target)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d have come, or others: %v", len(got), len(sent), err)
	}
	if first, second := <-result, <-result; first != nil || !errors.Is(second, io.EOF) {
		t.Errorf("%v; then %v, want EOF", first, second)
	}
	if len(sparePipes) == 0 {
		t.Error("no pipe is kept")
	}
}

// A splice that ends while its target takes nothing leaves no bytes for the next one, of another connection.
func TestSpliceThatIsCut(t *testing.T) {
	for len(sparePipes) > 0 { // else the next one takes another
		(<-sparePipes).release(true)
	}
	from, source := pair(t, "127.0.0.1:0")
	_, full := pair(t, "127.0.0.1:0")
	go func() { _, _ = source.Write(make([]byte, 64<<20)) }()
	for range 3 { // the first one fills what is between them
		_ = full.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := Splice(full, from, 64<<20); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	_ = from.Close()

	own, peer := pair(t, "127.0.0.1:0")
	target, to := pair(t, "127.0.0.1:0")
	_, _ = peer.Write([]byte("ours"))
	got := make([]byte, 4)
	if _, err := Splice(to, own, 4); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(target, got); err != nil || string(got) != "ours" {
		t.Errorf("%q, %v", got, err)
	}
}
