package main

import (
	"context"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// shutdown ends as the documentation of net/http and gRPC shows it, with a deadline before SIGKILL.
func shutdown() error {
	httpServer, grpcServer := newHTTP(), newGRPC()
	errs, err := start(httpServer, grpcServer)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	select {
	case err := <-errs:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.Background(), 25*time.Second)
	defer cancel()
	var both sync.WaitGroup
	both.Go(grpcServer.GracefulStop)
	err = httpServer.Shutdown(ending)
	both.Wait()
	return err
}
