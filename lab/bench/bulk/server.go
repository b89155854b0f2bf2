// Package bulk moves large bodies over HTTP/1.1 and spends as little processor time of its own on it as can be: what is
// sent comes by sendfile(2), what is received is thrown away in the kernel. So the proxy in between is what limits.
package bulk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Serve answers on the listener until it is closed: GET /bytes/N with N bytes, a request with a body with 200 once it
// has come, and all else with 200 at once.
func Serve(listener net.Listener) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		go func() {
			defer conn.Close()
			_ = converse(conn.(*net.TCPConn)) // that a client goes is how it ends
		}()
	}
}

func converse(conn *net.TCPConn) error {
	in := bufio.NewReaderSize(conn, 4<<10)
	content, err := zeros()
	if err != nil {
		return err
	}
	defer content.Close()
	for {
		request, err := http.ReadRequest(in)
		if err != nil {
			return err
		}
		if request.Header.Get("Expect") != "" {
			if _, err := io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return err
			}
		}
		if err := discardBody(conn, in, request); err != nil {
			return err
		}
		var size int64
		if number, ok := strings.CutPrefix(request.URL.Path, "/bytes/"); ok {
			if size, err = strconv.ParseInt(number, 10, 64); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", size); err != nil {
			return err
		}
		if err := send(conn, content, size, nil); err != nil {
			return err
		}
	}
}

// discardBody leaves the connection at the end of the request's body.
func discardBody(conn *net.TCPConn, in *bufio.Reader, request *http.Request) error {
	if request.ContentLength < 0 { // chunked: the proxy made it so
		_, err := io.Copy(io.Discard, request.Body)
		return err
	}
	return discardFrom(conn, in, request.ContentLength, nil)
}

// discardFrom throws size bytes away, those first that the reader has already; moved receives each portion.
func discardFrom(conn net.Conn, in *bufio.Reader, size int64, moved func(int64)) error {
	early := min(size, int64(in.Buffered()))
	if _, err := in.Discard(int(early)); err != nil {
		return err
	}
	if moved != nil {
		moved(early)
	}
	return discard(conn, size-early, moved)
}

// portion is how much is moved by one call.
const portion = 1 << 20

// zeros is a file of one portion in memory.
func zeros() (*os.File, error) {
	fd, err := unix.MemfdCreate("bulk", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "bulk")
	// Written and not only made long: pages that were never written cost the kernel more to send.
	if _, err := file.Write(make([]byte, portion)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// send writes size bytes; moved receives each portion.
func send(conn net.Conn, content *os.File, size int64, moved func(int64)) error {
	for size > 0 {
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			return err
		}
		n, err := io.Copy(conn, io.LimitReader(content, min(size, portion))) // by sendfile(2) if it is a TCP connection
		if moved != nil {
			moved(n)
		}
		if err != nil {
			return err
		}
		size -= n
	}
	return nil
}
