package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/rehearsal/gateway"
)

// Gateway forwards requests to pods, in this process.
type Gateway struct {
	*gateway.Gateway
	Address string
	access  string // file of its access log
	stop    func()
}

// StartGateway starts a gateway with a list of pods' addresses, and returns when it listens. It creates dir, for its
// logs.
func StartGateway(dir string, endpoints []string) (*Gateway, error) {
	mkdir := os.MkdirAll(dir, 0o755)
	out, err1 := os.Create(filepath.Join(dir, "gateway.log"))
	accessFile, err2 := os.Create(filepath.Join(dir, accessLogFile))
	ln, err3 := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(mkdir, err1, err2, err3); err != nil {
		return nil, fmt.Errorf("gateway: %w", err) // the rehearsal ends
	}
	access := accesslog.New(accessFile, accesslog.Text)
	forwards := gateway.New(slog.New(slog.NewTextHandler(out, nil)), access)
	forwards.SetEndpoints(endpoints)
	server := &http.Server{Handler: forwards}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln) // until stop
	}()
	return &Gateway{
		Address: ln.Addr().String(), access: accessFile.Name(), Gateway: forwards,
		stop: func() {
			ctx, late := context.WithTimeout(context.Background(), stopTimeout)
			defer late()
			if server.Shutdown(ctx) != nil {
				_ = server.Close()
			}
			<-served
			forwards.SetEndpoints(nil) // ends the kept connections
			access.Close()
			_, _ = accessFile.Close(), out.Close()
		},
	}, nil
}

// accessLogFile is the name of a gateway's access log.
const accessLogFile = "gateway-access.log"

// stopTimeout is how long a gateway without requests may take to end.
const stopTimeout = 2 * time.Second

// Stop ends the gateway; nil has ended. Its access log is complete afterwards.
func (g *Gateway) Stop() {
	if g != nil && g.stop != nil {
		g.stop()
		g.stop = nil
	}
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
