package nettest

import (
	"net"
	"net/http"
	"sync"
	"testing"
)

// T is what Listen uses of a test, also of one of package rapid.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Listen listens on a TCP address.
func Listen(t T, address string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// Serve serves HTTP/1.1, and HTTP/2 without TLS, until stop is called or the test ends.
func Serve(t testing.TB, ln net.Listener, h http.Handler) (stop func()) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: protocols}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(ln) }()
	stop = sync.OnceFunc(func() { _ = s.Close(); <-served })
	t.Cleanup(stop)
	return stop
}
