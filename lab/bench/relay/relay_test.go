package relay

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// TestMain is the relay in a process of its own, of which it holds the thread.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "relay" {
		fmt.Fprintln(os.Stderr, Serve(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestRelay(t *testing.T) {
	app, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	go func() {
		for {
			conn, err := app.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	listen := nettest.FreeAddress(t, "127.0.0.1")
	relay := exec.Command(os.Args[0], "relay", listen, app.Addr().String())
	relay.Stderr = os.Stderr
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = relay.Process.Kill(); _ = relay.Wait() }()
	for range 3 {
		conn := dial(t, listen)
		for _, word := range []string{"a", "some words", string(make([]byte, 8<<10))} { // the last fills the buffer
			if _, err := io.WriteString(conn, word); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(word))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != word {
				t.Fatalf("%d bytes come back as %q, %v", len(word), got, err)
			}
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("%d, %v; want the end", n, err)
		}
		_ = conn.Close()
	}
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.SetDeadline(deadline)
			return conn
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
