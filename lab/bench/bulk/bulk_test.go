package bulk

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Both ways, bodies come whole: a byte too many or too few would be read as the next head.
func TestBodiesFollowOneAnother(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- Serve(listener) }()
	for _, upload := range []bool{false, true} {
		const size = portion + 12345
		result, err := Run(t.Context(), Options{Address: listener.Addr().String(), Connections: 2, Size: size, Upload: upload, Duration: 300 * time.Millisecond})
		if err != nil {
			t.Errorf("upload %t: %v", upload, err)
		}
		if result.Bodies == 0 || result.Bytes < result.Bodies*size || result.Bytes > (result.Bodies+2)*size {
			t.Errorf("upload %t: %d bodies of %d bytes, but %d bytes", upload, result.Bodies, size, result.Bytes)
		}
	}
	_ = listener.Close()
	<-served
}

func TestRunTellsOfFailures(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if _, err := Run(t.Context(), Options{Address: listener.Addr().String(), Connections: 1, Size: 1, Duration: time.Second}); err == nil {
		t.Error("no listener: no error")
	}
}

// Over TLS, which the other side ends, the bodies come whole too.
func TestBodiesOverTLS(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- Serve(listener) }()
	front := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: listener.Addr().String()}))
	front.StartTLS()
	for _, upload := range []bool{false, true} {
		const size = portion + 12345
		result, err := Run(t.Context(), Options{Address: front.Listener.Addr().String(), Connections: 2, Size: size, Upload: upload,
			Duration: 300 * time.Millisecond, TLS: &tls.Config{InsecureSkipVerify: true}})
		if err != nil || result.Bodies == 0 || result.Bytes < result.Bodies*size || result.Bytes > (result.Bodies+2)*size {
			t.Errorf("upload %t: %d bodies of %d bytes, but %d bytes: %v", upload, result.Bodies, size, result.Bytes, err)
		}
	}
	front.CloseClientConnections()
	front.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	_ = listener.Close()
	<-served
}
