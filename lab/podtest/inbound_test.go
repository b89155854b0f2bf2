package podtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func TestInboundHTTP(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.serve(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto, " from ", r.RemoteAddr) })
	p.servesThrough("the pipe")
}

// servesThrough requires that clients of both families and of both versions of HTTP get the app's answer through a proxy.
func (p *pod) servesThrough(proxy string) {
	p.t.Helper()
	for family, address := range p.addresses() {
		for _, h2 := range []bool{false, true} {
			resp, err := p.client(h2).Get("http://" + address + "/")
			if err != nil {
				p.t.Errorf("%s, HTTP/2 %v: %v", family, h2, err)
				continue
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			through := strings.Contains(string(b), "from 127.0.0.6:") || strings.Contains(string(b), "from ["+p.Pod.IPv6.String()+"]:")
			if resp.StatusCode != 200 || !through || strings.HasPrefix(string(b), "HTTP/2.0") != h2 {
				p.t.Errorf("%s, HTTP/2 %v: %d %s; want it to come through %s", family, h2, resp.StatusCode, b, proxy)
			}
		}
	}
}

// Protocols in which the server speaks first, and TLS, whose bytes mean nothing.
func TestInboundOpaque(t *testing.T) {
	t.Parallel()
	p := start(t)
	ln := p.Pod.Listen(t, "tcp", ":3306")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); fmt.Fprint(c, "J\x00\x00\x00\x0b8.0.36\n"); _, _ = io.Copy(c, c) }()
		}
	}()
	certificate := certificatetest.SelfSigned(t, "shop")
	secure := tls.NewListener(p.Pod.Listen(t, "tcp", ":8443"), &tls.Config{Certificates: []tls.Certificate{certificate}})
	nettest.Serve(t, secure, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.TLS.ServerName) }))

	for _, address := range []string{p.Pod.TCP4(3306), p.Pod.TCP6(3306)} {
		c, err := p.Client.Dial(context.Background(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		r := bufio.NewReader(c)
		if line, err := r.ReadString('\n'); err != nil || !strings.HasSuffix(line, "8.0.36\n") {
			t.Errorf("%s: greeting %q, %v", address, line, err)
		}
		fmt.Fprint(c, "query\n")
		if line, err := r.ReadString('\n'); err != nil || line != "query\n" {
			t.Errorf("%s: answer %q, %v", address, line, err)
		}
		c.Close()
	}
	resp, err := p.client(false).Get("https://" + p.Pod.TCP4(8443) + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
