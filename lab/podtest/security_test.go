package podtest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// askFrom asks from a namespace, with a header by which a client may claim to be another.
func askFrom(n *nettest.Namespace, method, address, path string) (int, error) {
	req, err := http.NewRequest(method, "http://"+address+path, nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("X-Forwarded-For", "127.0.0.1")
	c := http.Client{Timeout: patience, Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// A peer outside the pod can neither end nor drain it without its token.
func TestOnlyThePodEndsThePod(t *testing.T) {
	t.Parallel()
	p := start(t, "LASTCALL_HOOK_TOKEN="+token)
	for _, address := range []string{p.Pod.TCP4(15020), p.Pod.TCP6(15020)} {
		for _, path := range []string{"/quitquitquit", "/drain", "/wait"} {
			for _, method := range []string{http.MethodPost, http.MethodGet} {
				if code, err := askFrom(p.Client, method, address, path); err != nil || code != http.StatusForbidden {
					t.Errorf("%s %s at %s from outside: %d, %v; want 403", method, path, address, code, err)
				}
			}
			// Not on loopback, though from the same pod: another address of the pod proves nothing.
			if code, err := askFrom(p.Pod, http.MethodPost, address, path); err != nil || code != http.StatusForbidden {
				t.Errorf("POST %s at %s from the pod: %d, %v; want 403", path, address, code, err)
			}
		}
		for _, path := range []string{"/wait/", "/wait/" + token[1:], "/wait/" + token + "/", "/wait/" + strings.ToUpper(token)} {
			if code, err := askFrom(p.Client, http.MethodGet, address, path); err != nil || code != http.StatusNotFound {
				t.Errorf("GET %s at %s: %d, %v; want 404", path, address, code, err)
			}
		}
	}
	if n := p.metric("lastcall_hook_refused_total"); n != "8" {
		t.Errorf("%s refused hooks are counted; want 8", n)
	}
	if strings.Contains(p.sidecar.log.String(), "drain phase") {
		t.Error("a drain has begun")
	}
	if code, err := askFrom(p.Client, http.MethodGet, p.Pod.TCP6(15020), "/wait/"+token); err != nil || code != http.StatusOK {
		t.Errorf("GET /wait/TOKEN: %d, %v; want 200", code, err)
	}
	if strings.Contains(p.sidecar.log.String(), token) {
		t.Error("the token stands in the log")
	}
	for _, address := range []string{"127.0.0.1:15020", "[::1]:15020"} {
		if code, err := askFrom(p.Pod, http.MethodPost, address, "/wait"); err != nil || code != http.StatusOK {
			t.Errorf("POST /wait at %s: %d, %v; want 200", address, code, err)
		}
	}
	if code, err := askFrom(p.Pod, http.MethodPost, "[::1]:15020", "/quitquitquit"); err != nil || code != http.StatusOK {
		t.Errorf("POST /quitquitquit: %d, %v; want 200", code, err)
	}
	if err := p.sidecar.wait(t); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// What listens on the pod's loopback alone is as far from the network with the capture as without it: the sidecar's
// admin API, and an app's own debug port.
func TestLoopbackStaysInThePod(t *testing.T) {
	t.Parallel()
	p := start(t)
	for _, address := range []string{"127.0.0.1:6060", "[::1]:6060"} {
		nettest.Each(t, p.Pod.Listen(t, "tcp", address), func(c net.Conn) { _, _ = io.WriteString(c, "secret") })
	}
	if code, err := askFrom(p.Pod, http.MethodGet, "127.0.0.1:15000", "/ready"); err != nil || code != http.StatusOK {
		t.Errorf("the admin API from within: %d, %v", code, err)
	}
	for _, address := range []string{p.Pod.TCP4(15000), p.Pod.TCP6(15000), p.Pod.TCP4(6060), p.Pod.TCP6(6060)} {
		c, err := p.Client.Dial(context.Background(), "tcp", address)
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s from outside: %v; want a refusal", address, err)
		}
	}
	// Direct connections to the ports of the capture are closed.
	for _, port := range []uint16{15001, 15006} {
		c, err := p.Client.Dial(context.Background(), "tcp", p.Pod.TCP4(port))
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("port %d: %v; want it closed", port, err)
		}
		_ = c.Close()
	}
	// An app that listens at the pod's address alone is reached.
	ln := p.Pod.Listen(t, "tcp", net.JoinHostPort(p.Pod.IPv4.String(), "7070"))
	nettest.Each(t, ln, func(c net.Conn) { _, _ = io.WriteString(c, "hello") })
	c := p.keepAlive(p.Pod.TCP4(7070))
	if line, _ := c.R.ReadString('o'); line != "hello" {
		t.Errorf("the app at the pod's own address sent %q", line)
	}
}
