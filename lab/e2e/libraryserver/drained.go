package main

import (
	"context"
	"net"

	"github.com/lastcall-dev/lastcall"
	"github.com/lastcall-dev/lastcall/grpcdrain"
)

// drained ends with lastcall's defaults.
func drained() error {
	ln, err := net.Listen("tcp", grpcAddress)
	if err != nil {
		return err
	}
	calls := grpcdrain.New(newGRPC, grpcdrain.Options{})
	errs := make(chan error, 1)
	go func() { errs <- calls.Serve(ln) }()
	if _, err := lastcall.Serve(context.Background(), newHTTP(), lastcall.With(calls)); err != nil {
		return err
	}
	return <-errs
}
