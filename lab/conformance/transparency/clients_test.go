package transparency

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/lab/conformance/packages"
)

// clients are all kinds of them.
type clients struct {
	p        *place
	children map[string][2]*child // by program: for the pod, and for the client's namespace
	number   atomic.Int64
}

// programs are those that have several kinds of client.
var programs = map[string]string{"http.client": "python", "requests": "python", "httpx": "python", "httpx-h2": "python",
	"aiohttp": "python", "websockets": "python", "node": "node", "undici": "node", "node2": "node", "java": "java"}

func startClients(p *place) *clients {
	c := &clients{p: p, children: map[string][2]*child{}}
	for name, command := range map[string]func(*testing.T) *exec.Cmd{"python": pythonClient, "node": nodeClient, "java": javaClient} {
		pair := [2]*child{startChild(p, p.clients(direct), command(p.t))}
		if p.net != nil {
			pair[1] = startChild(p, p.net.Client, command(p.t))
		}
		c.children[name] = pair
	}
	return c
}

func pythonClient(t *testing.T) *exec.Cmd {
	return exec.Command(peers.Need(t, "python"), "testdata/client.py")
}

var nodeFolder = packages.Installer("node")

func nodeClient(t *testing.T) *exec.Cmd {
	modules := nodeFolder(t, "npm", "../testdata/node/package.json", "package.json", "node_modules", packages.Npm)
	command := exec.Command(peers.Need(t, "node"), "testdata/client.js")
	command.Env = append(os.Environ(), "NODE_PATH="+modules)
	return command
}

var java = packages.Java("jetty", &scratch)

func javaClient(t *testing.T) *exec.Cmd { return java(t, "Client") }

// child is a client's process, which does many tasks at once.
type child struct {
	mu      sync.Mutex // guards the fields below
	in      io.Writer
	waiting map[string]chan string
}

func startChild(p *place, in *nettest.Namespace, cmd *exec.Cmd) *child {
	c := &child{waiting: map[string]chan string{}}
	input, err := cmd.StdinPipe()
	must.Do(p.t, err)
	out, output := io.Pipe()
	c.in, cmd.Stdout = input, output
	p.start(in, cmd)
	p.t.Cleanup(func() { _ = input.Close(); _ = output.Close() })
	go func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			name, result, _ := strings.Cut(lines.Text(), " ")
			c.mu.Lock()
			if w := c.waiting[name]; w != nil {
				w <- result
			}
			c.mu.Unlock()
		}
	}()
	return c
}

var errSilent = errors.New("the client's program does not answer")

func (c *child) do(name, task string) (string, error) {
	result := make(chan string, 1)
	c.mu.Lock()
	c.waiting[name] = result
	_, err := fmt.Fprintf(c.in, "%s %s\n", name, task)
	c.mu.Unlock()
	defer func() { c.mu.Lock(); delete(c.waiting, name); c.mu.Unlock() }()
	if err != nil {
		return "", err
	}
	select {
	case text := <-result:
		return text, nil
	case <-time.After(2 * time.Minute):
		return "", errSilent
	}
}

// do lets a client do its words in a mode.
func (c *clients) do(ctx context.Context, kind, mode, scheme string, at port, words string) ([]string, error) {
	url := scheme + "://" + c.p.address(at, mode)
	switch {
	case strings.HasPrefix(kind, "go"):
		return goClient(ctx, c.p.dial(mode), kind == "go-h2", url, words), nil
	case strings.HasPrefix(kind, "curl"):
		return c.curl(ctx, mode, kind == "curl-h2", url, words)
	}
	pair := c.children[programs[kind]]
	one := pair[0]
	if mode == captured {
		one = pair[1]
	}
	text, err := one.do(fmt.Sprint(c.number.Add(1)), kind+" "+url+" "+words)
	if err == nil && strings.Contains(text, "broken:") {
		err = fmt.Errorf("%s: %s", kind, text)
	}
	return strings.Fields(text), err
}
