package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// subject is one way from the clients to the app.
type subject struct {
	name  string // for --only
	title string // in the tables
	peer  string // whose program it is, as peers.Find knows it; empty for lastcall and direct
	// command is the program to run; nil means that there is nothing in between.
	command func(program string, p place) ([]string, error)
	ours    bool   // it is lastcall, or a part of it
	tcp     bool   // it passes on bytes without a look at HTTP
	http2   bool   // of an app: all that it speaks is HTTP/2 without TLS
	rival   string // of the program of --against: the subject that it is compared with
}

// place is where a subject runs: its folder, its port, the app's port, and two more ports. All ports are on 127.0.0.1.
type place struct {
	Dir                            string
	Listen, Backend, Admin, Status int
	Mode                           string // HAProxy's
	HTTP2                          bool   // without TLS, by prior knowledge; else HTTP/1.1
	TLS                            string // PEM file of a certificate and its key; empty: no TLS
	Clients                        int    // how many connections it must be ready for
}

// fewestClients is the smallest number of clients that a configuration is made for.
const fewestClients = 2048

// Sockets is the number of sockets of those clients and of as many connections to the app.
func (p place) Sockets() int { return 2*p.Clients + 100 }

// subjects in the order of the tables. Every one keeps connections to the app alive, writes no access log, has one
// thread, and otherwise the settings that it comes with.
var subjects = []subject{
	{name: "direct", title: "no proxy"},
	{name: "lastcall-http", title: "lastcall, HTTP", ours: true, command: lastcall("http")},
	{name: "lastcall-tcp", title: "lastcall, TCP", ours: true, tcp: true, command: lastcall("tcp")},
	{name: "envoy", title: "Envoy", peer: "envoy", command: func(program string, p place) ([]string, error) {
		config, err := p.envoyConfig()
		args := []string{"--config-path", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"}
		return append([]string{program}, args...), err
	}},
	{name: "haproxy-http", title: "HAProxy, HTTP", peer: "haproxy", command: haproxy("http")},
	{name: "haproxy-tcp", title: "HAProxy, TCP", tcp: true, peer: "haproxy", command: haproxy("tcp")},
	{name: "nginx", title: "nginx", peer: "nginx", command: nginx("nginx.conf")},
}

// The apps behind all of them, each for the tables that name it.
var (
	// backend answers about 200 bytes, as fast as can be.
	backend = subject{name: "backend", peer: "nginx", command: nginx("backend.conf")}
	// backend2 is the same in HTTP/2 without TLS.
	backend2 = subject{name: "backend-http2", http2: true, peer: "nghttpd",
		command: func(program string, p place) ([]string, error) {
			err := os.WriteFile(filepath.Join(p.Dir, "get"), []byte(smallBody), 0o644)
			return []string{program, "--no-tls", "--address", "127.0.0.1", "--max-concurrent-streams", "1000",
				"--htdocs", p.Dir, fmt.Sprint(p.Listen)}, err
		}}
)

// smallBody is the body that backend.conf returns, too.
const smallBody = `{"url": "http://localhost/get", "origin": "127.0.0.1"}` + "\n"

func lastcall(protocol string) func(string, place) ([]string, error) {
	return func(program string, p place) ([]string, error) {
		inbound := fmt.Sprintf("127.0.0.1:%d=127.0.0.1:%d,protocol=%s", p.Listen, p.Backend, protocol)
		if p.TLS != "" {
			inbound += fmt.Sprintf(",tls-cert=%s,tls-key=%[1]s", p.TLS)
		}
		return []string{program, "agent",
			"--inbound", inbound,
			"--status-address", "127.0.0.1", "--status-port", fmt.Sprint(p.Status),
			"--admin-address", fmt.Sprintf("127.0.0.1:%d", p.Admin),
			"--termination-log", filepath.Join(p.Dir, "termination-log")}, nil
	}
}

// envoyConfig is the configuration of an Envoy that `lastcall agent --proxy envoy` starts.
func (p place) envoyConfig() (string, error) {
	config, err := envoy.Bootstrap{Inbound: []envoy.Route{{
		Listen: fmt.Sprintf("127.0.0.1:%d", p.Listen), App: fmt.Sprintf("127.0.0.1:%d", p.Backend), Protocol: "http",
	}}}.Render(fmt.Sprintf("127.0.0.1:%d", p.Admin))
	if err != nil {
		return "", err
	}
	path := filepath.Join(p.Dir, "envoy.json")
	return path, os.WriteFile(path, config, 0o644)
}

func haproxy(mode string) func(string, place) ([]string, error) {
	return func(program string, p place) ([]string, error) {
		p.Mode = mode
		config, err := p.write("haproxy.cfg")
		return []string{program, "-db", "-q", "-f", config}, err
	}
}

func nginx(config string) func(string, place) ([]string, error) {
	return func(program string, p place) ([]string, error) {
		path, err := p.write(config)
		return []string{program, "-p", p.Dir, "-e", "stderr", "-c", path}, err
	}
}

//go:embed config
var configs embed.FS

// write fills in the configuration called name and returns its path in the place's folder.
func (p place) write(name string) (string, error) {
	t, err := template.New(name).Option("missingkey=error").ParseFS(configs, "config/"+name)
	if err != nil {
		return "", fmt.Errorf("read configuration: %w", err)
	}
	path := filepath.Join(p.Dir, name)
	file, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	defer file.Close()
	if err := t.Execute(file, p); err != nil {
		return "", fmt.Errorf("write configuration %s: %w", path, err)
	}
	return path, file.Close()
}

// program is the path of the subject's binary.
func (s subject) program(lastcall string) (string, error) {
	switch {
	case s.command == nil:
		return "", nil
	case s.ours:
		if _, err := os.Stat(lastcall); err != nil {
			return "", fmt.Errorf("find lastcall: %w (`make build` makes it)", err)
		}
		return filepath.Abs(lastcall) // it runs in a folder of its own
	}
	return peers.Find(s.peer)
}

// withRivals adds, after each subject of this build, the same subject with the program of --against.
func withRivals(subjects []subject) (all []subject) {
	for _, s := range subjects {
		if all = append(all, s); s.ours {
			s.name, s.title, s.rival = "against-"+s.name, s.title+", of --against", s.name
			all = append(all, s)
		}
	}
	return all
}
