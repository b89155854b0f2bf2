package conformance

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/grpclog"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tlsserver"
)

// scratch is a folder for what all tests share.
var scratch string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if len(os.Args) > 2 && os.Args[1] == streamProgram {
		return runStreamProgram(os.Args[2])
	}
	if len(os.Args) > 4 && os.Args[1] == modelProgram {
		pace, err := time.ParseDuration(os.Args[4])
		if err == nil {
			err = runModelProgram(os.Args[2], os.Args[3], pace)
		}
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6") // most wait for a stream or a pod to end, not for a core
	}
	grpclog.SetLoggerV2(panicking{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
	var err error
	if scratch, err = os.MkdirTemp("", "lastcall-conformance"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(scratch)
	return m.Run()
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// startPipe starts a pipe in front of app and ends it with the test.
func startPipe(t *testing.T, app net.Addr, options ...func(*pipe.Config)) *pipe.Pipe {
	t.Helper()
	cfg := pipe.Config{Inbound: []pipe.Inbound{{Listen: "127.0.0.1:0", App: app.String(), Protocol: pipe.Auto}}}
	for _, option := range options {
		option(&cfg)
	}
	p, err := pipe.Start(cfg)
	must.Do(t, err)
	t.Cleanup(p.Kill)
	return p
}

// secured makes the pipe end TLS, with h2 agreed by ALPN.
func secured(t *testing.T) func(*pipe.Config) {
	secret := certificatetest.NewSecret(t)
	authority := certificatetest.New(t)
	secret.Write(authority.Sign("app.test", 0), authority.PEM())
	return func(c *pipe.Config) {
		c.Inbound[0].TLS = &tlsserver.Options{Cert: secret.Cert(), Key: secret.Key(), ALPN: []string{"h2", "http/1.1"}}
	}
}

// apps are servers of HTTP/2 with prior knowledge, without TLS, that answer a GET
// of / with a few bytes.
var apps = []struct {
	name  string
	start func(t *testing.T) net.Addr
}{
	{"net/http", startGo},
	{"nghttpd", startNGHTTPD},
	{"nginx", startNginx},
}

const page = "a page of a few bytes\n"

func startGo(t *testing.T) net.Addr {
	return serveGo(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) }))
}

func serveGo(t *testing.T, h http.Handler) net.Addr {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Serve(t, ln, h)
	return ln.Addr()
}

func startNGHTTPD(t *testing.T) net.Addr {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "index.html"), []byte(page), 0o600))
	addr := freeAddr(t)
	startInstance(t, addr, syscall.SIGTERM, syscall.SIGKILL, exec.Command(peers.Need(t, "nghttpd"), "--no-tls", "-a", "127.0.0.1", "-d", dir,
		fmt.Sprint(addr.Port)))
	return addr
}

func startNginx(t *testing.T) net.Addr {
	program := peers.Need(t, "nginx")
	dir := t.TempDir()
	addr := freeAddr(t)
	config := fmt.Sprintf(`daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr crit;
events { worker_connections 256; }
http {
    access_log off;
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
    keepalive_requests 1000000;
    server {
        listen %[2]s http2;
        location / { return 200 %[3]q; }
    }
}
`, dir, addr, page)
	file := filepath.Join(dir, "nginx.conf")
	must.Do(t, os.WriteFile(file, []byte(config), 0o600))
	startInstance(t, addr, syscall.SIGTERM, syscall.SIGKILL, exec.Command(program, "-p", dir, "-e", "stderr", "-c", file))
	return addr
}

func freeAddr(t *testing.T) *net.TCPAddr {
	t.Helper()
	address, err := netip.ParseAddrPort(nettest.FreeAddress(t, "127.0.0.1"))
	must.Do(t, err)
	return net.TCPAddrFromAddrPort(address)
}

// awaitListener waits until a program listens, or ends.
func awaitListener(t *testing.T, addr string, ended <-chan struct{}, output fmt.Stringer) {
	t.Helper()
	polltest.NoError(t, func() error {
		select {
		case <-ended:
			t.Fatalf("the program ended before it listened on %s: %s", addr, output)
		default:
		}
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// awaitIdle waits until nothing is busy.
func awaitIdle(t *testing.T, p *pipe.Pipe) {
	t.Helper()
	polltest.Eventually(t, "no connection is busy", func() bool {
		a, err := p.Activity(t.Context())
		return err == nil && a.Busy == 0
	})
}
