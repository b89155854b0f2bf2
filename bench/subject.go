package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/lastcall-dev/lastcall/internal/envoy"
	"github.com/lastcall-dev/lastcall/internal/peers"
)

// subject is one way from the clients to the app.
type subject struct {
	name  string // for --only
	title string // in the table
	peer  string // whose program it is, as peers.Find knows it; empty for lastcall and direct
	// command is what to run; nil means that there is nothing in between.
	command func(program string, p place) ([]string, error)
}

// place is where a subject runs: its folder, its port, the app's port, and one port more for whoever wants it.
// All ports are on 127.0.0.1.
type place struct {
	Dir                    string
	Listen, Backend, Admin int
	Mode                   string // HAProxy's
}

// subjects in the order of the table. Every one keeps connections to the app alive, writes no access log, has one
// thread, and otherwise the settings that it comes with.
var subjects = []subject{
	{name: "direct", title: "no proxy"},
	{name: "lastcall-http", title: "lastcall, HTTP", command: lastcall("http")},
	{name: "lastcall-tcp", title: "lastcall, TCP", command: lastcall("tcp")},
	{name: "envoy", title: "Envoy", peer: "envoy", command: func(program string, p place) ([]string, error) {
		config, err := p.envoyConfig()
		return envoyCommand(program, config), err
	}},
	{name: "envoy-lean", title: "Envoy, lean", peer: "envoy", command: func(program string, p place) ([]string, error) {
		config, err := p.write("envoy-lean.yaml")
		return envoyCommand(program, config), err
	}},
	{name: "haproxy-http", title: "HAProxy, HTTP", peer: "haproxy", command: haproxy("http")},
	{name: "haproxy-tcp", title: "HAProxy, TCP", peer: "haproxy", command: haproxy("tcp")},
	{name: "nginx", title: "nginx", peer: "nginx", command: nginx("nginx.conf")},
}

// backend is the app behind all of them.
var backend = subject{name: "backend", peer: "nginx", command: nginx("backend.conf")}

func lastcall(protocol string) func(string, place) ([]string, error) {
	return func(program string, p place) ([]string, error) {
		return []string{program, "agent",
			"--inbound", fmt.Sprintf("127.0.0.1:%d=127.0.0.1:%d,protocol=%s", p.Listen, p.Backend, protocol),
			"--status-address", "127.0.0.1", "--status-port", fmt.Sprint(p.Admin),
			"--termination-log", filepath.Join(p.Dir, "termination-log")}, nil
	}
}

func envoyCommand(program, config string) []string {
	return []string{program, "--config-path", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"}
}

// envoyConfig is what `lastcall agent --proxy envoy` gives an Envoy that stands in for the pipe.
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
	case s.peer == "":
		if _, err := os.Stat(lastcall); err != nil {
			return "", fmt.Errorf("find lastcall: %w (`make build` makes it)", err)
		}
		return filepath.Abs(lastcall) // it runs in a folder of its own
	}
	return peers.Find(s.peer)
}
