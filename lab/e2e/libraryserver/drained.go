package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/grpcdrain"
	"github.com/lastcall-dev/lastcall/httpdrain"
)

// drained ends with lastcall's defaults.
func drained() error {
	http1, err := net.Listen("tcp", httpAddress)
	if err != nil {
		return err
	}
	http2, err := net.Listen("tcp", grpcAddress)
	if err != nil {
		return err
	}
	web := httpdrain.New(newHTTP(), httpdrain.Options{Uncounted: func(r *http.Request) bool { return strings.HasPrefix(r.UserAgent(), "kube-probe/") }})
	calls := grpcdrain.New(newGRPC, grpcdrain.Options{})
	errs := make(chan error, 2)
	go func() { errs <- web.Serve(http1) }()
	go func() { errs <- calls.Serve(http2) }()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	<-signals
	_, err = drain.Termination{Plane: drain.Join(web, calls), Config: drain.DefaultConfig(), Trigger: drain.Terminate}.Run(context.Background())
	return err
}
