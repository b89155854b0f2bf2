package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"k8s.io/client-go/util/cert"

	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
)

// subject is one way from the clients to the app, or an app.
type subject struct {
	name  string // for --only
	title string // in the tables
	peer  string // its program, as peers.Find knows it, or lastcall's path
	// command returns the words to run; nil means that there is nothing in between.
	command func(program string, p place) ([]string, error)
	ours    bool   // it is lastcall
	http1   bool   // it uses HTTP/1.1 towards the app, whatever the client uses
	rival   string // of the program of --against: the subject that it is compared with
}

// place is where a subject runs. All ports are on 127.0.0.1.
type place struct {
	Dir, Files                     string // its own folder, and the one of bench
	Listen, Backend, Admin, Status int    // ports; Backend, the app's, is 0 of an app
	HTTP2                          bool   // without TLS, by prior knowledge; else HTTP/1.1
	TLS                            string // PEM file of a certificate and its key; empty: no TLS
	Clients                        int    // how many connections it must be ready for
	Mode                           string // HAProxy's
}

const lastcallPeer = "bin/lastcall"

// subjects in the order of the tables. Every one keeps connections to the app alive, writes no access log, has one
// thread, and otherwise the settings that it comes with.
var subjects = []subject{
	{name: "direct", title: "no proxy"},
	{name: "lastcall-http", title: "lastcall, HTTP", peer: lastcallPeer, ours: true, command: lastcall("http")},
	{name: "lastcall-tcp", title: "lastcall, TCP", peer: lastcallPeer, ours: true, command: lastcall("tcp")},
	{name: "envoy", title: "Envoy", peer: "envoy", command: runEnvoy},
	{name: "haproxy-http", title: "HAProxy, HTTP", peer: "haproxy", command: haproxy("http")},
	{name: "haproxy-tcp", title: "HAProxy, TCP", peer: "haproxy", command: haproxy("tcp")},
	{name: "nginx", title: "nginx", peer: "nginx", http1: true, command: nginx},
}

// The apps behind all of them. They answer /get with about 200 bytes, as fast as can be.
var (
	backend  = subject{name: "backend", peer: "nginx", command: nginx}
	backend2 = subject{name: "backend-http2", peer: "nghttpd", command: nghttpd}
)

// writeFiles writes what the apps serve into the folder, and the certificate of proxies with TLS.
func writeFiles(dir string) error {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	for name, text := range map[string][]byte{
		"get":      []byte(`{"url": "http://localhost/get", "origin": "127.0.0.1"}` + "\n"),
		"body16":   make([]byte, 16<<10),
		"body1024": make([]byte, 1<<20),
		"tls.pem":  append(certificate, key...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return fmt.Errorf("write what the apps serve: %w", err)
		}
	}
	return nil
}

func subjectNames() (names []string) {
	for _, s := range subjects {
		names = append(names, s.name)
	}
	return names
}

func lastcall(protocol string) func(string, place) ([]string, error) {
	return func(program string, p place) ([]string, error) {
		inbound := fmt.Sprintf("127.0.0.1:%d=127.0.0.1:%d,protocol=%s", p.Listen, p.Backend, protocol)
		if p.TLS != "" {
			inbound += fmt.Sprintf(",tls-cert=%s,tls-key=%[1]s", p.TLS)
		}
		return []string{program, "agent", "--inbound", inbound,
			"--status-address", "127.0.0.1", "--status-port", fmt.Sprint(p.Status),
			"--admin-address", fmt.Sprintf("127.0.0.1:%d", p.Admin),
			"--termination-log", filepath.Join(p.Dir, "termination-log")}, nil
	}
}

// runEnvoy has the configuration of an Envoy that `lastcall agent --proxy envoy` starts.
func runEnvoy(program string, p place) ([]string, error) {
	config, err := envoy.Bootstrap{Inbound: []envoy.Route{{
		Listen: fmt.Sprintf("127.0.0.1:%d", p.Listen), App: fmt.Sprintf("127.0.0.1:%d", p.Backend), Protocol: "http",
	}}}.Render(fmt.Sprintf("127.0.0.1:%d", p.Admin))
	if err != nil {
		return nil, err
	}
	path := filepath.Join(p.Dir, "envoy.json")
	return []string{program, "--config-path", path, "--concurrency", "1", "--disable-hot-restart",
		"--log-level", "error"}, os.WriteFile(path, config, 0o644)
}

func haproxy(mode string) func(string, place) ([]string, error) {
	return func(program string, p place) ([]string, error) {
		p.Mode = mode
		config, err := p.write("haproxy.cfg")
		return []string{program, "-db", "-q", "-f", config}, err
	}
}

func nghttpd(program string, p place) ([]string, error) {
	return []string{program, "--no-tls", "--address", "127.0.0.1", "--max-concurrent-streams", "1000",
		"--htdocs", p.Files, fmt.Sprint(p.Listen)}, nil
}

func nginx(program string, p place) ([]string, error) {
	config, err := p.write("nginx.conf")
	return []string{program, "-p", p.Dir, "-e", "stderr", "-c", config}, err
}

var (
	//go:embed config
	configs   embed.FS
	templates = template.Must(template.ParseFS(configs, "config/*"))
)

// write fills in the configuration called name and returns its path in the place's folder.
func (p place) write(name string) (string, error) {
	file, err := os.Create(filepath.Join(p.Dir, name))
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	defer file.Close()
	return file.Name(), templates.ExecuteTemplate(file, name, p)
}

// Sockets is the number of sockets of those clients and of as many connections to the app.
func (p place) Sockets() int { return 2*p.Clients + 100 }
