// Package loadtest has what clients in tests do by hand, because net/http would retry.
package loadtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Kept is a client that keeps its connection.
type Kept struct {
	net.Conn
	R *bufio.Reader // reads Conn
}

// Keep opens a connection, which is closed when the test ends. patience limits everything that happens on it.
func Keep(t *testing.T, address string, patience time.Duration) *Kept {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { _ = c.Close() })
	return &Kept{c, bufio.NewReader(c)}
}

// Ask sends a request.
func (k *Kept) Ask(path string) { fmt.Fprintf(k, "GET %s HTTP/1.1\r\nHost: app\r\n\r\n", path) }

// Answer is the response to the oldest request without one, and its body.
func (k *Kept) Answer(t *testing.T) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(k.R, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// Receive reads a response to its end.
func Receive(in *bufio.Reader) (*http.Response, error) {
	response, err := http.ReadResponse(in, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, response.Body)
	}
	return response, err
}
