package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lastcall-dev/lastcall/internal/gateway"
)

type gatewayFlags struct {
	listen, endpoints, cert, key, accessLog, admin string
	debug                                          bool
}

func gatewayCommand() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "gateway --endpoints FILE",
		Short: "An ingress gateway that tells in Envoy's words how a pod went",
		Long: `An ingress gateway for rehearsals: HTTP/1.1, or HTTP/1.1 and HTTP/2 over TLS,
round robin over the endpoints of a file.

The file has one host:port on a line; # begins a comment. It is watched, and may be
rewritten or replaced at any time.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8000", "`address` to listen on, host:port")
	flags.StringVar(&f.endpoints, "endpoints", "", "`file` with one host:port on a line; watched")
	flags.StringVar(&f.cert, "tls-cert", "", "PEM `file` of the certificate; makes it speak TLS")
	flags.StringVar(&f.key, "tls-key", "", "PEM `file` of the certificate's key")
	flags.StringVar(&f.accessLog, "access-log", "", "`file` for one line a request, - for standard output (default none)")
	flags.StringVar(&f.admin, "admin", "", "`address` for GET /ready (default none)")
	flags.BoolVar(&f.debug, "debug", false, "log what happens to each request")
	return cmd
}

func (f *gatewayFlags) run(cmd *cobra.Command) (err error) {
	o, done, err := f.options(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	g, err := gateway.New(o)
	if err != nil {
		return usage{err}
	}
	ctx, stop := untilTold(cmd)
	defer stop()
	ln, err := listen(f.listen, "--listen")
	if err != nil {
		return err
	}
	if f.admin == "" {
		return g.Serve(ctx, ln)
	}
	admin, err := listen(f.admin, "--admin")
	if err != nil {
		_ = ln.Close()
		return err
	}
	return serveAdmin(ctx, g, ln, admin)
}

// serveAdmin serves both; the admin's end comes with the gateway's.
func serveAdmin(ctx context.Context, g *gateway.Gateway, ln, admin net.Listener) error {
	server := &http.Server{Handler: g.AdminHandler(), ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(admin) })
	defer serving.Wait()
	defer func() { _ = server.Close() }()
	return g.Serve(ctx, ln)
}

func listen(address, flag string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s %s (accepted is host:port): %w", flag, address, err)
	}
	return ln, nil
}

func (f *gatewayFlags) options(cmd *cobra.Command) (o gateway.Options, done func() error, err error) {
	if f.endpoints == "" {
		return o, nil, usage{errors.New("no --endpoints: say a file with one host:port on a line")}
	}
	if (f.cert == "") != (f.key == "") {
		return o, nil, usage{errors.New("--tls-cert and --tls-key belong together: say both or none")}
	}
	level := slog.LevelInfo
	if f.debug {
		level = slog.LevelDebug
	}
	o.EndpointsFile = f.endpoints
	o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	if f.cert != "" {
		cert, err := gateway.LoadCertificate(f.cert, f.key)
		if err != nil {
			return o, nil, usage{err}
		}
		o.Certificates = []tls.Certificate{cert}
	}
	o.AccessLog, done, err = openAccessLog(f.accessLog, cmd.OutOrStdout())
	return o, done, err
}

func openAccessLog(name string, stdout io.Writer) (io.Writer, func() error, error) {
	none := func() error { return nil }
	switch name {
	case "":
		return nil, none, nil
	case "-":
		return stdout, none, nil
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, usage{fmt.Errorf("--access-log takes a file or -: %w", err)}
	}
	return file, file.Close, nil
}
