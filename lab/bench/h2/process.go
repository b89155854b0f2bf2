package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// command is how a proxy is run.
func command(name, dir string, listen, backend int) ([]string, error) {
	admin, err := freePort()
	if err != nil {
		return nil, err
	}
	from, to := fmt.Sprintf("127.0.0.1:%d", listen), fmt.Sprintf("127.0.0.1:%d", backend)
	switch name {
	case "lastcall":
		return []string{*lastcall, "agent", "--inbound", from + "=" + to + ",protocol=http", "--status-address", "127.0.0.1",
			"--status-port", fmt.Sprint(admin), "--admin-address", "off", "--termination-log", dir + "/termination-log"}, nil
	case "envoy":
		program, err := peers.Find("envoy")
		if err != nil {
			return nil, err
		}
		config, err := envoy.Bootstrap{Inbound: []envoy.Route{{Listen: from, App: to, Protocol: "http"}}}.Render(fmt.Sprintf("127.0.0.1:%d", admin))
		if err != nil {
			return nil, err
		}
		path, err := write(dir, "envoy.json", string(config))
		return []string{program, "--config-path", path, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"}, err
	case "haproxy":
		program, err := peers.Find("haproxy")
		if err != nil {
			return nil, err
		}
		path, err := write(dir, "haproxy.cfg", fmt.Sprintf(`global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 300s
listen app
    bind %s proto h2
    server app %s proto h2
`, from, to))
		return []string{program, "-db", "-q", "-f", path}, err
	}
	return nil, fmt.Errorf("there is no %q; there are direct, lastcall, envoy and haproxy", name)
}

// process is a program on one core.
type process struct {
	*exec.Cmd
	done chan struct{}
}

// start runs a program and returns when it listens on port.
func start(ctx context.Context, core, port int, program string, args ...string) (*process, error) {
	p := &process{exec.CommandContext(ctx, "taskset", append([]string{"-c", strconv.Itoa(core), program}, args...)...), make(chan struct{})}
	p.Env = append(os.Environ(), "GOMAXPROCS=1", "MINIMUM_DRAIN_DURATION=0s")
	var said bytes.Buffer
	p.Stderr = &said
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() { defer close(p.done); _ = p.Wait() }()
	for end := time.Now().Add(15 * time.Second); ; {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
			return p, nil
		}
		select {
		case <-p.done:
			return nil, fmt.Errorf("start %s: it ended at once: %s", program, &said)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			p.stop()
			return nil, fmt.Errorf("start %s: %w", program, err)
		}
	}
}

// stop ends the process and returns when it is gone.
func (p *process) stop() {
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGTERM, syscall.SIGKILL} {
		_ = p.Process.Signal(s)
		select {
		case <-p.done:
			return
		case <-time.After(300 * time.Millisecond):
		}
	}
	<-p.done
}

// cpu is the processor time that the process has used; 0 when there is none.
func (p *process) cpu() time.Duration {
	if p == nil {
		return 0
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name before may hold blanks
	if err != nil || len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

var counts = regexp.MustCompile(`(\d+) succeeded, (\d+) failed, (\d+) errored`)

// load makes requests for so many seconds and returns how many succeeded; all must.
func load(ctx context.Context, h2load string, port, seconds int) (int, error) {
	out, err := exec.CommandContext(ctx, "taskset", "-c", strconv.Itoa(*loadCore), h2load, "-c16", "-m32", fmt.Sprintf("-D%d", seconds),
		fmt.Sprintf("http://127.0.0.1:%d/get", port)).CombinedOutput()
	found := counts.FindSubmatch(out)
	if err != nil || found == nil || string(found[2]) != "0" || string(found[3]) != "0" {
		return 0, fmt.Errorf("run h2load: %v\n%s", err, out)
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil || n == 0 {
		return 0, fmt.Errorf("run h2load: no requests\n%s", out)
	}
	return n, nil
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}
