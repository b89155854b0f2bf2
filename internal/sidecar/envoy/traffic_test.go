package envoy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// h2 is a client that keeps one HTTP/2 connection, by prior knowledge.
func (r *running) h2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

// Several streams of one connection are one that is busy; idle, it holds nothing.
func TestHTTP2(t *testing.T) {
	r := start(t)
	client := r.h2()
	got := make(chan string, 3)
	for range cap(got) {
		go func() {
			resp, err := client.Get("http://" + r.listen + "/slow")
			if err != nil {
				got <- err.Error()
				return
			}
			b, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			got <- fmt.Sprint(string(b), err)
		}()
	}
	for range cap(got) {
		<-r.app.requests
	}
	r.awaitActivity(1, 1)
	o := r.held()
	r.app.let()
	for range cap(got) {
		if answer := <-got; answer != "done<nil>" {
			t.Error(answer)
		}
	}
	o.want(t, drain.Clean)
}

// A listener that also takes what is no HTTP: what is none is busy while open.
func TestRawTCPOnAuto(t *testing.T) {
	r := start(t, func(o *Options) { o.Bootstrap.Inbound[0].Protocol = "auto" })
	idle := r.idle()
	r.awaitActivity(1, 0)
	raw := r.dial()
	if _, err := io.WriteString(raw, "\x00\x01 no HTTP\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := raw.R.ReadString('\n'); err != nil || !strings.HasPrefix(b, "HTTP/1.1 400") { // the app's own answer
		t.Fatal(b, err)
	}
	silent := r.dial() // server speaks first: TCP after the inspector's patience
	_ = idle.Close()
	r.awaitActivity(1, 1)
	o := r.held()
	_ = silent.Close()
	o.want(t, drain.Clean)
}

// Requests on IPv6 and on IPv4 by a listener for both are seen, though Envoy
// writes the colons of its name in another way.
func TestDualStack(t *testing.T) {
	_, port, _ := net.SplitHostPort(nettest.FreeAddress(t, "::")) // of IPv4, too
	admin := nettest.FreeAddress(t, "::1")
	r := start(t, func(o *Options) { o.Admin, o.Bootstrap.Inbound[0].Listen = admin, ":"+port })
	var conns []*loadtest.Kept
	for _, host := range []string{"127.0.0.1", "::1"} {
		r.listen = net.JoinHostPort(host, port)
		conns = append(conns, r.busy())
	}
	r.awaitActivity(2, 2)
	o := r.held()
	r.app.let()
	o.endsWith(conns...)
}

// A part of a request is a request.
func TestSlowRequest(t *testing.T) {
	for name, parts := range map[string][2]string{
		"a body": {"POST /upload HTTP/1.1\r\nHost: app\r\nContent-Length: 10\r\n\r\n01234", "56789"},
		"a head": {"GET / HTTP/1.1\r\nHos", "t: app\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			c := r.dial()
			fmt.Fprint(c, parts[0])
			r.awaitActivity(1, 1)
			o := r.held()
			fmt.Fprint(c, parts[1])
			o.endsWith(c)
		})
	}
}

// An answer that its reader takes slowly is not over when Envoy has done with it.
func TestSlowReader(t *testing.T) {
	r := start(t)
	c := r.dial()
	c.Ask("/big")
	resp, err := http.ReadResponse(c.R, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := r.held()
	if n, err := io.Copy(io.Discard, resp.Body); n != bigAnswer || err != nil {
		t.Errorf("%d of %d bytes, %v", n, bigAnswer, err)
	}
	_ = c.Close()
	o.want(t, drain.Clean)
}

// Idle connections of every kind end with Envoy, by a FIN.
func TestIdleConnectionsHoldNothing(t *testing.T) {
	for _, blind := range []bool{false, true} {
		t.Run(fmt.Sprintf("blind=%v", blind), func(t *testing.T) {
			r := start(t, func(o *Options) { o.blind = blind })
			one := r.idle()
			client := r.h2()
			resp, err := client.Get("http://" + r.listen + "/")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			never := r.dial() // never sends anything
			r.awaitActivity(3, 0)
			r.terminate(soon).want(t, drain.Clean)
			for _, c := range []*loadtest.Kept{one, never} {
				if b, err := io.ReadAll(c.R); len(b) > 0 || err != nil {
					t.Errorf("an idle connection got %q, %v; want its end", b, err)
				}
			}
		})
	}
}
