package strategy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// Gateway forwards requests to pods.
type Gateway struct {
	Address string
	process *node.Process

	file   string
	access string
	write  func(endpoints []string) ([]byte, error) // encodes file
}

// StartGateway starts a gateway with a list of pods' addresses, and returns when it listens. It creates dir, for its logs.
func (env *Env) StartGateway(ctx context.Context, dir string, endpoints []string) (*Gateway, error) {
	g, err := env.startGateway(ctx, dir, endpoints)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	return g, nil
}

func (env *Env) startGateway(ctx context.Context, dir string, endpoints []string) (*Gateway, error) {
	// The list has its own folder, because the gateway watches folders.
	list := filepath.Join(dir, "endpoints")
	if err := os.MkdirAll(list, 0o755); err != nil {
		return nil, err
	}
	if env.Programs.Gateway == ProxyEnvoy {
		return env.startEnvoyGateway(ctx, dir, list, endpoints)
	}
	port, err := env.Ports.Next()
	if err != nil {
		return nil, err
	}
	g := &Gateway{Address: node.Loopback(port), file: filepath.Join(list, "list"), access: filepath.Join(dir, "gateway-access.log"), write: writeList}
	if err := g.SetEndpoints(endpoints); err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "gateway.log")
	args := []string{env.Programs.Self, "static-gateway", "--http", g.Address, "--endpoints", g.file, "--access-log", g.access}
	if g.process, err = env.Node.Start(node.Command{Args: args, Env: environment(), Output: out}); err != nil {
		return nil, err
	}
	return g, awaitPort(ctx, g.process, port, out)
}

// SetEndpoints replaces the list of endpoints.
func (g *Gateway) SetEndpoints(endpoints []string) error {
	list, err := g.write(endpoints)
	if err == nil {
		err = replace(g.file, list)
	}
	if err != nil {
		return fmt.Errorf("set the gateway's endpoints: %w", err)
	}
	return nil
}

// stopTimeout is how long a gateway without requests may take to exit.
const stopTimeout = 2 * time.Second

// Stop ends the gateway. Its access log is complete afterwards.
func (g *Gateway) Stop() {
	_ = g.process.Terminate()
	late := time.AfterFunc(stopTimeout, func() { _ = g.process.Kill() })
	defer late.Stop()
	<-g.process.Done()
}

// Line returns the access log's line for a request of path, or "".
func (g *Gateway) Line(path string) string {
	data, err := os.ReadFile(g.access)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " "+path+" ") {
			return strings.TrimSuffix(line, "\n")
		}
	}
	return ""
}
