package strategy

import (
	"context"
	_ "embed" // gateway.yaml
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// gatewayConfig is Envoy's configuration. $NAME is replaced when it starts.
//
//go:embed gateway.yaml
var gatewayConfig string

// startEnvoyGateway starts a real Envoy as the gateway. It reads its endpoints from a file, which is replaced as a
// control plane would push them.
func (env *Env) startEnvoyGateway(ctx context.Context, dir string, endpoints []string) (*Gateway, error) {
	listen, err1 := env.Ports.Next()
	admin, err2 := env.Ports.Next()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	folder := filepath.Join(dir, "endpoints") // of its own, because Envoy watches folders
	file := filepath.Join(folder, "endpoints.json")
	g := &Gateway{Address: node.Loopback(listen), access: filepath.Join(dir, accessLogFile)}
	g.set = func(endpoints []string) error {
		list, err := writeEDS(endpoints)
		if err != nil {
			return err
		}
		return replace(file, list)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	if err := g.SetEndpoints(endpoints); err != nil {
		return nil, err
	}
	values := map[string]string{
		"LISTEN": strconv.Itoa(listen), "ADMIN": strconv.Itoa(admin),
		"ACCESS": strconv.Quote(g.access), "ENDPOINTS": strconv.Quote(file), "FOLDER": strconv.Quote(folder),
	}
	text := os.Expand(gatewayConfig, func(name string) string { return values[name] })
	config, out := filepath.Join(dir, "gateway.yaml"), filepath.Join(dir, "gateway.log")
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	p, err := env.Node.Start(node.Command{Args: []string{
		env.Programs.Envoy, "-c", config, "--disable-hot-restart", "-l", "warning",
		"--concurrency", strconv.Itoa(envoyWorkers), "--file-flush-interval-msec", "1000",
	}, Env: environment(), Dir: dir, Output: out})
	if err != nil {
		return nil, err
	}
	g.stop = func() {
		_ = p.Terminate()
		late := time.AfterFunc(stopTimeout, func() { _ = p.Kill() })
		defer late.Stop()
		<-p.Done()
	}
	return g, awaitReady(ctx, p, "http://"+node.Loopback(admin)+"/ready", out)
}

// writeEDS encodes endpoints for Envoy.
func writeEDS(endpoints []string) ([]byte, error) {
	type object map[string]any
	pods := []object{}
	for _, e := range endpoints {
		host, text, err := net.SplitHostPort(e)
		if err != nil {
			return nil, fmt.Errorf("endpoint %q: %w", e, err)
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("port of endpoint %q: %w", e, err)
		}
		address := object{"socket_address": object{"address": host, "port_value": port}}
		pods = append(pods, object{"endpoint": object{"address": address}})
	}
	return json.Marshal(object{"resources": []object{{
		"@type":        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		"cluster_name": "pods", "endpoints": []object{{"lb_endpoints": pods}},
	}}})
}

// replace replaces a file atomically.
func replace(file string, data []byte) error {
	fresh := file + ".new"
	if err := os.WriteFile(fresh, data, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}
