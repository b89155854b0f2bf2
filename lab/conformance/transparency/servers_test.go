package transparency

import (
	"crypto/tls"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate/certificatetest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// server is a real one. All have the paths of testdata/app.py; keep-alive ends after two seconds or three requests where a
// server can be configured so.
type server struct {
	name    string
	at      port
	isFiles bool // it has no app: no /echo, /stream and /cut
}

func (p *place) startServers() (all []server) {
	folder, err := os.Getwd()
	must.Do(p.t, err)
	python, php, node := peers.Need(p.t, "python"), peers.Need(p.t, "php"), peers.Need(p.t, "node")
	begin := func(name string, command func(address, number string) *exec.Cmd) {
		at := p.port()
		number := strconv.Itoa(at[direct])
		cmd := command("0.0.0.0:"+number, number)
		cmd.Dir = filepath.Join(folder, "testdata")
		p.await(at, p.serve(cmd))
		all = append(all, server{name: name, at: at})
	}
	begin("node", func(_, number string) *exec.Cmd { return exec.Command(node, "server.js", number) })
	begin("uvicorn", func(_, number string) *exec.Cmd {
		return exec.Command(python, "-m", "uvicorn", "--host", "0.0.0.0", "--port", number, "--timeout-keep-alive", "2", "--log-level", "critical", "app:asgi")
	})
	begin("gunicorn", func(address, _ string) *exec.Cmd {
		return exec.Command(python, "-m", "gunicorn", "-b", address, "-k", "gthread", "--threads", "32", "--keep-alive", "2", "--log-level", "critical",
			"--no-control-socket", "app:wsgi")
	})
	begin("uwsgi", func(address, _ string) *exec.Cmd {
		return exec.Command(peers.Need(p.t, "uwsgi"), "--http-socket", address, "--threads", "32", "--wsgi-file", "app.py", "--callable", "wsgi", "--disable-logging",
			"--die-on-term", "--http-socket-modifier1", "0", "--listen", "100")
	})
	begin("php", func(address, _ string) *exec.Cmd {
		cmd := exec.Command(php, "-d", "opcache.enable_cli=0", "-S", address, "router.php")
		cmd.Env = append(os.Environ(), "PHP_CLI_SERVER_WORKERS=8")
		return cmd
	})
	begin("jdk", func(_, number string) *exec.Cmd { return java(p.t, "Server", "jdk", number) })
	begin("jetty", func(_, number string) *exec.Cmd { return java(p.t, "Server", "jetty", number) })
	all = append(all, server{name: "go", at: p.goServer(nil)})
	return append(all, p.fileServers()...)
}

// fileServers are nginx and Apache; secure ones are those by TLS, and h2 that of nginx by HTTP/2.
func (p *place) fileServers() []server {
	dir, err := os.MkdirTemp(scratch, "files")
	must.Do(p.t, err)
	root := filepath.Join(dir, "root")
	for name, data := range map[string][]byte{"root/ok": []byte("ok\n"), "root/big": []byte(strings.Repeat("b", 1<<20))} {
		file := filepath.Join(dir, name)
		_ = os.MkdirAll(root, 0o755)
		must.Do(p.t, os.WriteFile(file, data, 0o644))
	}
	for _, folder := range []string{scratch, dir} {
		_ = os.Chmod(folder, 0o755) // the workers' user is not ours
	}
	secret := certificatetest.NewSecret(p.t)
	authority := certificatetest.New(p.t)
	secret.Write(authority.Sign("app.test", 0), authority.PEM())
	nginx, apache := peers.Need(p.t, "nginx"), peers.Need(p.t, "apache2")
	secure, h2 := p.port(), p.port()
	configure := func(name string, at port, more ...string) string {
		text, err := os.ReadFile("testdata/" + name)
		must.Do(p.t, err)
		words := append([]string{"DIR", dir, "PORT", strconv.Itoa(at[direct])}, more...)
		file := filepath.Join(dir, name)
		must.Do(p.t, os.WriteFile(file, []byte(strings.NewReplacer(words...).Replace(string(text))), 0o644))
		return file
	}
	one := p.port()
	file := configure("nginx.conf", one, "SECURE", strconv.Itoa(secure[direct]), "HTTP2", strconv.Itoa(h2[direct]),
		"CERTIFICATE", secret.Cert(), "KEY", secret.Key())
	p.await(one, p.serve(exec.Command(nginx, "-p", dir, "-e", "stderr", "-c", file)))
	two := p.port()
	file = configure("apache.conf", two, "MODULES", peers.ApacheModules(apache))
	p.await(two, p.serve(exec.Command(apache, "-DFOREGROUND", "-f", file)))
	return []server{{"nginx", one, true}, {"apache", two, true}, {"nginx-tls", secure, true}, {"nginx-h2", h2, true}}
}

// goServer is net/http's, by TLS with a configuration.
func (p *place) goServer(secure *tls.Config) port {
	at := p.port()
	listener := p.listen(at)
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	s := &http.Server{Handler: http.HandlerFunc(goApp), IdleTimeout: 2 * time.Second, Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.Serve(listener) }()
	p.t.Cleanup(func() { _ = s.Close() })
	return at
}

func goApp(w http.ResponseWriter, r *http.Request) {
	whole := func(status int, text string) {
		if status != http.StatusNoContent && status != http.StatusNotModified {
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	flush := func() { _ = http.NewResponseController(w).Flush() }
	switch r.URL.Path {
	case "/ok":
		whole(200, "ok\n")
	case "/close":
		w.Header().Set("Connection", "close")
		whole(200, "ok\n")
	case "/big":
		whole(200, strings.Repeat("b", 1<<20))
	case "/204":
		whole(204, "")
	case "/304":
		whole(304, "")
	case "/early":
		whole(413, "too large\n")
	case "/echo":
		sum := crc32.NewIEEE()
		n, err := io.Copy(sum, r.Body)
		whole(200, fmt.Sprintf("%d %08x %v\n", n, sum.Sum32(), err))
	case "/stream":
		for n := range 5 {
			_, _ = fmt.Fprintf(w, "part %d\n", n)
			flush()
			time.Sleep(20 * time.Millisecond) // what the app does
		}
	case "/cut":
		w.Header().Set("Content-Length", "5000")
		_, _ = w.Write(make([]byte, 1000))
		flush()
		panic(http.ErrAbortHandler)
	case "/gone":
		panic(http.ErrAbortHandler)
	case "/hints":
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		whole(200, "ok\n")
	case "/trailer":
		w.Header().Set("Trailer", "X-End")
		_, _ = io.WriteString(w, "ok\n")
		w.Header().Set("X-End", "here")
	default:
		whole(404, "nothing here\n")
	}
}
