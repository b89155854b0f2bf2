package main

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// Clients that send requests without end, to an app that takes its time, cost the agent
// neither its memory nor the other clients their answers. What the other clients' requests
// take is logged only: it depends on what else the machine does.
//
//	go test -run TestPipeUnderAttack -v ./cmd/lastcall
func TestPipeUnderAttack(t *testing.T) {
	const slow = "GET /slow HTTP/1.1\r\nHost: app\r\n\r\n"
	for _, attack := range []struct {
		name        string
		connections int
		send        func(c net.Conn)
	}{
		{"8 connections with 49 MiB of requests", 8, func(c net.Conn) { repeat(c, slow, 49<<20/8) }},
		{"one connection with 32 MB", 1, func(c net.Conn) { repeat(c, slow, 32e6) }},
		{"300,000 requests, whose answers are read", 1, func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			repeat(c, "GET / HTTP/1.1\r\nHost: app\r\n\r\n", 300_000*29)
		}},
		{"64 connections with requests of 10 KiB", 64, func(c net.Conn) {
			repeat(c, "GET /slow HTTP/1.1\r\nHost: app\r\nX: "+strings.Repeat("x", 10<<10)+"\r\n\r\n", 10<<20)
		}},
		{"8 connections with as many streams of HTTP/2 as they may", 8, openStreams},
	} {
		t.Run(attack.name, func(t *testing.T) {
			a := startAgent(t, exec.Command(programtest.Build(t)), startAttackedApp(t))
			before := programtest.Peak(t, a.Cmd)
			cpu := busyTime(t, a.Process.Pid)
			began := time.Now()
			var attackers sync.WaitGroup
			var conns []net.Conn
			for range attack.connections {
				c, err := net.Dial("tcp", a.address)
				must.Do(t, err)
				conns = append(conns, c)
				_ = c.SetDeadline(time.Now().Add(patience))
				attackers.Go(func() { attack.send(c) })
			}
			during := p99(t, a.address)
			took := time.Since(began)
			most, used := programtest.Peak(t, a.Cmd), busyTime(t, a.Process.Pid)-cpu
			for _, c := range conns {
				_ = c.Close()
			}
			attackers.Wait()
			t.Logf("memory %d MiB, before %d; p99 of other clients %s; CPU %s in %s", most>>20, before>>20, during, used, took.Round(time.Millisecond))
			if most > attackMemory {
				t.Errorf("the agent has taken %d MiB", most>>20)
			}
		})
	}
}

// repeat sends a request again and again, until so many bytes are sent or the peer takes no
// more before the connection's deadline.
func repeat(c net.Conn, request string, bytes int) {
	block := []byte(strings.Repeat(request, max(1, 64<<10/len(request))))
	for sent := 0; sent < bytes; sent += len(block) {
		if _, err := c.Write(block); err != nil {
			return
		}
	}
}

// openStreams opens streams with long paths until the peer ends the connection.
func openStreams(c net.Conn) {
	go func() { _, _ = io.Copy(io.Discard, c) }()
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = http2.NewFramer(c, nil).WriteSettings()
	path := "/" + strings.Repeat("x", 200)
	block := append([]byte{0x82, 0x86, 0x04, 0x7f, byte(len(path) - 127)}, path...) // an indexed name, a literal of 201 bytes
	block = append(block, 0x01, 3, 'a', 'p', 'p')
	var frames []byte
	for i := range uint32(1 << 17) {
		frames = append(frames, 0, byte(len(block)>>8), byte(len(block)), 1, 0x05)
		frames = binary.BigEndian.AppendUint32(frames, 2*i+1)
		frames = append(frames, block...)
		if len(frames) > 64<<10 {
			if _, err := c.Write(frames); err != nil {
				return
			}
			frames = frames[:0]
		}
	}
}

// p99 is the time of nearly all of 200 requests, one after another on one connection.
func p99(t *testing.T, address string) time.Duration {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var all []time.Duration
	for range 200 {
		began := time.Now()
		resp, err := client.Get("http://" + address + "/")
		if err != nil {
			t.Fatalf("another client's request: %v", err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		all = append(all, time.Since(began))
		time.Sleep(5 * time.Millisecond)
	}
	return programtest.Quantile(all, .99)
}
