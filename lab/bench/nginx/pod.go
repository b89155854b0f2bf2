package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// What the clients ask for.
const (
	short = 1500 * time.Millisecond
	long  = 8 * time.Second
	late  = time.Second // after SIGTERM: endpoints are not removed at once
	pool  = 5           // idle connections
	asked = 3           // requests that can be lost
)

type theatre struct {
	node  *node.Node
	ports *node.Ports
	nginx string
}

// pod is nginx and the app behind it.
type pod struct {
	theatre    *theatre
	dir        string
	port       int
	nginx, app *node.Process
}

// result is what became of the requests, and when the pod was gone.
type result struct {
	lost [asked]error // nil: answered
	gone time.Duration
}

func (th *theatre) play(ctx context.Context, w way, s stopSignal) (r result, err error) {
	dir, err := os.MkdirTemp("", "lastcall-bench-nginx-")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p, err := th.start(ctx, dir)
	if err != nil {
		return r, err
	}
	for range pool {
		c, err := p.ask("/")
		if err != nil {
			return r, fmt.Errorf("idle connection: %w", err)
		}
		defer func() { _ = c.Close() }()
	}
	var clients sync.WaitGroup
	began, over := make(chan struct{}), make(chan struct{})
	for i, path := range []string{delay(short), delay(long), delay(short)} {
		clients.Go(func() {
			if i == 2 {
				<-began
				time.Sleep(late)
			}
			var c net.Conn
			if c, r.lost[i] = p.ask(path); c != nil {
				<-over // kept, as a gateway's are
				_ = c.Close()
			}
		})
	}
	time.Sleep(150 * time.Millisecond) // two requests are on their way
	nginx, app := node.Member{Container: container{p.nginx, s.signal}}, node.Member{Container: p.app}
	if w.nginx != nil {
		nginx.PreStop = w.nginx(p)
	}
	if w.app != nil {
		app.PreStop = w.app(p)
	}
	start := time.Now()
	close(began)
	node.Terminate(ctx, []node.Member{nginx, app}, grace)
	r.gone = time.Since(start)
	close(over)
	clients.Wait()
	return r, nil
}

func delay(d time.Duration) string { return fmt.Sprintf("/delay/%g", d.Seconds()) }

func (th *theatre) start(ctx context.Context, dir string) (*pod, error) {
	p := &pod{theatre: th, dir: dir}
	back, err1 := th.ports.Next()
	front, err2 := th.ports.Next()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	p.port = front
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(peers.NginxConf(dir, node.Loopback(front), node.Loopback(back))), 0o644); err != nil {
		return nil, err
	}
	var err error
	p.app, err = th.node.Start(node.Command{
		Args:   []string{filepath.Join(*bin, "rehearse"), "httpbin", "--listen", node.Loopback(back), "--on-term", "exit"},
		Output: filepath.Join(dir, "app.log"),
	})
	if err != nil {
		return nil, err
	}
	p.nginx, err = th.node.Start(node.Command{Args: []string{th.nginx, "-p", dir, "-c", conf}, Output: filepath.Join(dir, "nginx.log")})
	if err != nil {
		return nil, err
	}
	for range 500 {
		c, err := p.ask("/get")
		if err == nil {
			_ = c.Close()
			if n, err := p.nginx.Listening(); err != nil || n == 0 {
				return nil, fmt.Errorf("the loop would see %d listeners of nginx's: %w", n, err)
			}
			return p, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	log, _ := os.ReadFile(filepath.Join(dir, "nginx.log"))
	return nil, fmt.Errorf("nginx does not answer: %s", log)
}

// answerTimeout limits a request without a response.
const answerTimeout = 40 * time.Second

// ask asks on a connection of its own.
func (p *pod) ask(path string) (net.Conn, error) {
	conn, err := net.Dial("tcp", node.Loopback(p.port))
	if err != nil {
		return nil, err
	}
	if err := request(conn, path); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return conn, nil
}

func request(conn net.Conn, path string) error {
	if err := conn.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: app\r\n\r\n", path); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("status %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
