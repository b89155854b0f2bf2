package podtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// keptAlive is one connection from the client's namespace, for more than one request.
type keptAlive struct {
	net.Conn
	r *bufio.Reader
}

func (p *pod) keepAlive(address string) *keptAlive {
	p.t.Helper()
	c, err := p.Client.Dial(context.Background(), "tcp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &keptAlive{c, bufio.NewReader(c)}
}

// send asks without waiting for the answer.
func (c *keptAlive) send(path string) error {
	_, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: pod\r\n\r\n", path)
	return err
}

// receive reads a response, and whether it closes the connection.
func (c *keptAlive) receive() (body string, goodbye bool, err error) {
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), resp.Close, err
}

func (c *keptAlive) ask(path string) (body string, goodbye bool, err error) {
	if err := c.send(path); err != nil {
		return "", false, err
	}
	return c.receive()
}
