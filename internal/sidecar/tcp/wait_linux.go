package tcp

import (
	"errors"
	"net"
	"os"
	"runtime"
	"syscall"
	"time"
)

// poll returns the socket in the runtime's poller.
func (s *Socket) poll() (syscall.RawConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil, net.ErrClosed
	}
	if s.raw == nil {
		s.file = os.NewFile(uintptr(s.fd), "")
		s.raw, _ = s.file.SyscallConn() // fails only without a file
		if s.woken {
			_ = s.file.SetReadDeadline(time.Now())
		} else if !s.readUntil.IsZero() {
			_ = s.file.SetReadDeadline(s.readUntil)
		}
		if !s.writeUntil.IsZero() {
			_ = s.file.SetWriteDeadline(s.writeUntil)
		}
	}
	return s.raw, nil
}

// WhenReadable calls f, now and each time when there may be something to read, until it returns true or the read
// deadline has come.
func (s *Socket) WhenReadable(f func(fd uintptr) bool) error {
	s.mu.Lock()
	raw, fd, woken := s.raw, s.fd, s.woken
	s.mu.Unlock()
	if raw == nil {
		for try := 0; try < 2 && fd >= 0 && !woken; try++ {
			if try > 0 {
				runtime.Gosched() // when all others wait, it may be there
			}
			if f(uintptr(fd)) {
				return nil
			}
		}
		var err error
		if raw, err = s.poll(); err != nil {
			return err
		}
	}
	return waitError(raw.Read(f))
}

// waitError is an error of waiting in the runtime's poller: the deadline has come, or the file is closed.
func waitError(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return net.ErrClosed
}

// Wake wakes the goroutine that waits in WhenReadable, whatever the deadline is. That goroutine calls WasWoken.
func (s *Socket) Wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken = true
	if s.file != nil {
		_ = s.file.SetReadDeadline(time.Now())
	}
}

// WasWoken reports whether err, of a read, is due to Wake rather than to the deadline, which it then restores.
func (s *Socket) WasWoken(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.woken
	if s.woken = false; was {
		_ = s.file.SetReadDeadline(s.readUntil)
	}
	return was
}

// SetReadDeadline replaces the read deadline, and a Wake that has had no effect yet shows when it expires.
func (s *Socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readUntil = t
	if s.file == nil {
		return nil
	}
	return s.file.SetReadDeadline(t)
}

// SetWriteDeadline replaces the write deadline.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeUntil = t
	if s.file == nil {
		return nil
	}
	return s.file.SetWriteDeadline(t)
}

// SetDeadline sets the deadlines of both directions.
func (s *Socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}
