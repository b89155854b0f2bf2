package podtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// families runs a test for the pod's IPv4 and for its IPv6 address, each with a pod of its own.
func families(t *testing.T, env []string, f func(t *testing.T, p *pod, address func(port uint16) string)) {
	t.Parallel()
	for _, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			p := start(t, env...)
			address := p.Pod.TCP4
			if family == "IPv6" {
				address = p.Pod.TCP6
			}
			f(t, p, address)
		})
	}
}

// holding is an HTTP handler that answers /held only when it is let.
func holding() (h http.HandlerFunc, requested, let chan struct{}) {
	requested, let = make(chan struct{}, 1), make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			requested <- struct{}{}
			<-let
		}
		fmt.Fprint(w, "answered")
	}, requested, let
}

// HTTP/1.1: requests in flight get responses with Connection: close, idle connections are closed, new ones are served.
func TestDrainHTTP1(t *testing.T) {
	families(t, nil, func(t *testing.T, p *pod, address func(uint16) string) {
		h, requested, let := holding()
		stop := p.serve(h)
		held, idle := p.keepAlive(address(appPort)), p.keepAlive(address(appPort))
		if body, goodbye, err := idle.ask("/"); err != nil || body != "answered" || goodbye {
			t.Fatalf("before the end: %q, close %v, %v", body, goodbye, err)
		}
		if err := held.send("/held"); err != nil {
			t.Fatal(err)
		}
		<-requested
		_ = p.sidecar.Terminate()
		p.logged("phase=draining")
		if body, goodbye, err := p.keepAlive(address(appPort)).ask("/"); err != nil || body != "answered" || !goodbye {
			t.Errorf("a new connection: %q, close %v, %v", body, goodbye, err)
		}
		p.logged("phase=waiting")
		if _, err := idle.r.ReadByte(); err != io.EOF {
			t.Errorf("the idle connection: %v; want a FIN", err)
		}
		close(let)
		if body, goodbye, err := held.receive(); err != nil || body != "answered" || !goodbye {
			t.Errorf("in flight: %q, close %v, %v", body, goodbye, err)
		}
		if _, err := held.r.ReadByte(); err != io.EOF {
			t.Errorf("after the answer: %v; want a FIN", err)
		}
		p.logged("outbound connections stay open until the app exits")
		stop()
		p.left("clean")
	})
}

// HTTP/2: GOAWAY, the stream in flight is answered, GOAWAY with its number, FIN.
func TestDrainHTTP2(t *testing.T) {
	families(t, nil, func(t *testing.T, p *pod, address func(uint16) string) {
		h, requested, let := holding()
		stop := p.serve(h)
		c := p.keepAlive(address(appPort))
		fr := http2.NewFramer(c, c.r)
		fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		var block strings.Builder
		enc := hpack.NewEncoder(&block)
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "pod"}, {":path", "/held"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		if err := errors.Join(fr.WriteSettings(http2.Setting{ID: 2, Val: 0}, http2.Setting{ID: 3, Val: 100}), fr.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 1, BlockFragment: []byte(block.String()), EndStream: true, EndHeaders: true,
		})); err != nil {
			t.Fatal(err)
		}
		<-requested
		_ = p.sidecar.Terminate()
		var seen []string
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					seen = append(seen, err.Error())
				}
				break
			}
			switch f := f.(type) {
			case *http2.GoAwayFrame:
				if len(seen) == 0 {
					close(let) // the response comes after the GOAWAY
				}
				seen = append(seen, fmt.Sprintf("GOAWAY %d %v", f.LastStreamID, f.ErrCode))
			case *http2.MetaHeadersFrame:
				seen = append(seen, "status "+f.PseudoValue("status"))
			case *http2.DataFrame:
				if len(f.Data()) > 0 {
					seen = append(seen, string(f.Data()))
				}
			case *http2.RSTStreamFrame:
				seen = append(seen, f.String())
			}
		}
		if got, want := strings.Join(seen, ", "), "GOAWAY 2147483647 NO_ERROR, status 200, answered, GOAWAY 1 NO_ERROR"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		p.logged("outbound connections stay open until the app exits")
		stop()
		p.left("clean")
	})
}

// greeting is how a server that speaks first begins.
const greeting = "8.0.36\n"

// serveFirst runs a server that sends a greeting, and then echoes. It returns how each conversation ended.
func (p *pod) serveFirst(port uint16) (stop func(), endings <-chan error) {
	ln := p.Pod.Listen(p.t, "tcp", fmt.Sprintf(":%d", port))
	ended := make(chan error, 8)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.WriteString(c, greeting)
				_, err := io.Copy(c, c)
				ended <- err
			}()
		}
	}()
	leave := p.present()
	return func() { _ = ln.Close(); leave() }, ended
}

func (c *keptAlive) converse(word string) error {
	if _, err := fmt.Fprintln(c, word); err != nil {
		return err
	}
	line, err := c.r.ReadString('\n')
	if err == nil && line != word+"\n" {
		err = fmt.Errorf("%q in answer to %q", line, word)
	}
	return err
}

// Server-first TCP: the conversation continues to its own end, then the sidecar exits.
func TestDrainServerFirst(t *testing.T) {
	families(t, nil, func(t *testing.T, p *pod, address func(uint16) string) {
		stop, endings := p.serveFirst(3306)
		c := p.keepAlive(address(3306))
		if line, err := c.r.ReadString('\n'); err != nil || line != greeting {
			t.Fatalf("greeting %q, %v", line, err)
		}
		_ = p.sidecar.Terminate()
		p.logged("phase=waiting")
		for i := range 3 {
			if err := c.converse(fmt.Sprintf("query %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(p.sidecar.log.String(), "phase=done") {
			t.Error("the drain had ended before the conversation")
		}
		_ = c.Close()
		if err := <-endings; err != nil {
			t.Errorf("the server's end of it: %v", err)
		}
		p.logged("outbound connections stay open until the app exits")
		stop()
		p.left("clean")
	})
}

// At the last call, a FIN on both sides; never a reset.
func TestLastCallServerFirst(t *testing.T) {
	families(t, []string{"TERMINATION_GRACE_PERIOD_SECONDS=4"}, func(t *testing.T, p *pod, address func(uint16) string) {
		stop, endings := p.serveFirst(3306)
		c := p.keepAlive(address(3306))
		if err := func() error { _, err := c.r.ReadString('\n'); return err }(); err != nil {
			t.Fatal(err)
		}
		_ = p.sidecar.Terminate()
		p.logged("phase=waiting")
		if err := c.converse("query"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.r.ReadByte(); err != io.EOF {
			t.Errorf("the client sees %v; want a FIN", err)
		}
		if err := <-endings; err != nil {
			t.Errorf("the server sees %v; want a FIN", err)
		}
		_ = c.Close()
		stop()
		p.left("cut")
	})
}

// TLS goes through as it is: the answer in flight comes, whole and under the app's own certificate.
func TestDrainTLS(t *testing.T) {
	families(t, nil, func(t *testing.T, p *pod, address func(uint16) string) {
		certificate := certificatetest.SelfSigned(t, "shop")
		h, requested, let := holding()
		ln := tls.NewListener(p.Pod.Listen(t, "tcp", ":8443"), &tls.Config{Certificates: []tls.Certificate{certificate}})
		end := nettest.Serve(t, ln, h)
		leave := p.present()
		stop := func() { end(); leave() }
		t.Cleanup(stop)

		raw, err := p.Client.Dial(context.Background(), "tcp", address(8443))
		if err != nil {
			t.Fatal(err)
		}
		secure := tls.Client(raw, &tls.Config{ServerName: "shop", InsecureSkipVerify: true})
		t.Cleanup(func() { _ = secure.Close() })
		_ = secure.SetDeadline(time.Now().Add(patience))
		c := keepAliveOn(secure)
		if err := c.send("/held"); err != nil {
			t.Fatal(err)
		}
		<-requested
		_ = p.sidecar.Terminate()
		p.logged("phase=waiting")
		close(let)
		if body, _, err := c.receive(); err != nil || body != "answered" {
			t.Errorf("in flight: %q, %v", body, err)
		}
		if names := secure.ConnectionState().PeerCertificates[0].DNSNames; len(names) != 1 || names[0] != "shop" {
			t.Errorf("the certificate is for %v", names)
		}
		if err := secure.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("close: %v", err)
		}
		p.logged("outbound connections stay open until the app exits")
		stop()
		p.left("clean")
	})
}
