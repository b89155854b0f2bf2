package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
)

// pair is a connection of the gateway's kind and its other end.
func pair(t *testing.T) (*conn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	return newConn(near), far.(*net.TCPConn)
}

// What decides whether a request may be repeated: could the other side have
// seen it when it ended the connection?
func TestEndUnderARequest(t *testing.T) {
	const request = "GET / HTTP/1.1\r\n\r\n"
	for _, tt := range []struct {
		name   string
		do     func(t *testing.T, near *conn, far *net.TCPConn)
		repeat bool
	}{
		{"closed before a byte was written", func(t *testing.T, _ *conn, far *net.TCPConn) {
			_ = far.Close()
		}, true},
		{"closed, and then written to", func(t *testing.T, near *conn, far *net.TCPConn) {
			_ = far.Close()
			_, _ = io.WriteString(near, request)
		}, true},
		{"read and closed", func(t *testing.T, near *conn, far *net.TCPConn) {
			_, _ = io.WriteString(near, request)
			_, _ = io.ReadFull(far, make([]byte, len(request)))
			_ = far.Close()
		}, false},
		{"read and half closed", func(t *testing.T, near *conn, far *net.TCPConn) {
			_, _ = io.WriteString(near, request)
			_, _ = io.ReadFull(far, make([]byte, len(request)))
			_ = far.CloseWrite()
		}, false},
		{"received, not read, reset", func(t *testing.T, near *conn, far *net.TCPConn) {
			_, _ = io.WriteString(near, request)
			_ = far.SetLinger(0)
			_ = far.Close()
		}, false},
	} {
		for _, kept := range []bool{false, true} {
			name := tt.name
			if kept {
				name += ", kept connection"
			}
			t.Run(name, func(t *testing.T) {
				near, far := pair(t)
				if !near.known {
					t.Skip("the kernel does not report acknowledged bytes")
				}
				if kept {
					before := &flight{cancel: func(error) {}}
					near.carry(before)
					_, _ = io.WriteString(near, request)
					_, _ = io.ReadFull(far, make([]byte, len(request)))
					_, _ = io.WriteString(far, ok)
					_, _ = io.ReadFull(near, make([]byte, len(ok)))
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				near.carry(&flight{cancel: cancel})
				tt.do(t, near, far)
				if n, err := near.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Fatalf("read %d, %v", n, err)
				}
				if repeat := !errors.Is(context.Cause(ctx), errConnectionTermination); repeat != tt.repeat {
					t.Errorf("may be repeated: %v, want %v", repeat, tt.repeat)
				}
			})
		}
	}
}
