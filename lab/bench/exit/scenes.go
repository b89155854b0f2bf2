package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// scene is one kind of termination.
type scene struct {
	what     string
	protocol string
	env      []string
	run      func(*sidecar) (time.Duration, error)
	asks     bool // the last thing that happens is an answer
	long     bool // takes seconds by design
}

const minimumDrain = time.Second

var (
	atOnceFree = []string{"MINIMUM_DRAIN_DURATION=1s", "LASTCALL_QUIET_TIME=0s", "LASTCALL_IDLE_GRACE=0s"}
	quietOnly  = []string{"MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=1s", "LASTCALL_IDLE_GRACE=0s"}
)

var scenes = []scene{
	{"last byte of the last answer to exit, ended at a random moment", "http", atOnceFree, afterAnswer, true, false},
	{"the same, TCP: last connection closed to exit", "tcp", atOnceFree, afterClose, false, false},
	{"end of the minimum drain (1 s) to exit, idle pod", "http", atOnceFree, idle, false, false},
	{"end of the quiet time (1 s) to exit, idle pod, no minimum drain", "http", quietOnly, idle, false, false},
	{"end of the minimum drain (1 s) to exit, 10 idle keep-alive connections", "http", atOnceFree, idleKeepAlive, false, false},
	{"SIGTERM to exit, by default, idle pod", "http", nil, whole(nothing), false, true},
	{"SIGTERM to exit, by default, one idle HTTP/1.1 keep-alive connection", "http", nil, whole(http1), false, true},
	{"SIGTERM to exit, by default, one idle HTTP/2 connection", "http", nil, whole(http2Prior), false, true},
	{"SIGTERM to exit, by default, one raw TCP connection", "tcp", nil, whole(rawTCP), false, true},
}

// lastPath is what the last request asks for, after its milliseconds.
const lastPath = "?last"

// get asks on a connection of its own and returns when the last byte came.
func (s *sidecar) get(path string) (net.Conn, time.Time, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return nil, time.Time{}, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: app\r\n\r\n", path); err != nil {
		return nil, time.Time{}, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, time.Time{}, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return conn, time.Now(), err
}

func afterAnswer(s *sidecar) (time.Duration, error) {
	type answer struct {
		at  time.Time
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		conn, at, err := s.get(fmt.Sprintf("/%d%s", 1200+rand.IntN(1500), lastPath))
		if err == nil {
			conn.Close()
		}
		answered <- answer{at, err}
	}()
	time.Sleep(50 * time.Millisecond) // the request is on its way
	s.terminate()
	gone, err := s.gone()
	if err != nil {
		return 0, err
	}
	a := <-answered
	return gone.Sub(a.at), a.err
}

func afterClose(s *sidecar) (time.Duration, error) {
	conn, _, err := s.get("/0")
	if err != nil {
		return 0, err
	}
	closed := make(chan time.Time, 1)
	s.terminate()
	time.AfterFunc(time.Duration(1200+rand.IntN(1500))*time.Millisecond, func() {
		at := time.Now()
		conn.Close()
		closed <- at
	})
	gone, err := s.gone()
	return gone.Sub(<-closed), err
}

func idle(s *sidecar) (time.Duration, error) {
	began := s.terminate()
	gone, err := s.gone()
	return gone.Sub(began) - minimumDrain, err
}

func idleKeepAlive(s *sidecar) (time.Duration, error) {
	for range 10 {
		conn, _, err := s.get("/0")
		if err != nil {
			return 0, err
		}
		defer conn.Close()
	}
	return idle(s)
}

// whole measures a termination from SIGTERM to the exit, with one open connection.
func whole(open func(*sidecar) (io.Closer, error)) func(*sidecar) (time.Duration, error) {
	return func(s *sidecar) (time.Duration, error) {
		conn, err := open(s)
		if err != nil {
			return 0, err
		}
		if conn != nil {
			defer conn.Close()
		}
		began := s.terminate()
		gone, err := s.gone()
		return gone.Sub(began), err
	}
}

func nothing(*sidecar) (io.Closer, error) { return nil, nil }

func http1(s *sidecar) (io.Closer, error) {
	conn, _, err := s.get("/0")
	return conn, err
}

func http2Prior(s *sidecar) (io.Closer, error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	resp, err := (&http.Client{Transport: transport}).Get("http://" + s.address + "/0")
	if err != nil {
		return nil, err
	}
	if resp.ProtoMajor != 2 {
		err = fmt.Errorf("answered in %s", resp.Proto)
	}
	_, copyErr := io.Copy(io.Discard, resp.Body)
	return closer(transport.CloseIdleConnections), errors.Join(err, copyErr, resp.Body.Close())
}

type closer func()

func (c closer) Close() error { c(); return nil }

func rawTCP(s *sidecar) (io.Closer, error) { return net.Dial("tcp", s.address) }
