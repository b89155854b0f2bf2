package lastcall

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
)

// serveSide serves on the server's Addr, without a drain, until stop is called.
func (s *settings) serveSide(what string, server *http.Server) (stop func(), err error) {
	useTLS := hasCertificate(server.TLSConfig)
	ln, err := listen.Open("tcp", addressOf(server, useTLS))
	if err != nil {
		return nil, fmt.Errorf("%s address: %w", what, err)
	}
	s.log.Info("serving "+what, "address", ln.Addr().String(), "tls", useTLS)
	var serving sync.WaitGroup
	serving.Go(func() {
		serve := server.Serve
		if useTLS {
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error(what+" has failed", "error", err)
		}
	})
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = server.Shutdown(ctx) // the answer to a hook or a scrape is on its way
		_ = server.Close()
		serving.Wait()
	}, nil
}

// serveSides serves the servers that remain until the very end: the status address, and the servers of WithSideServer.
func (s *settings) serveSides(st *status, requests *drain.Requests) (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	all := s.sides
	var status *http.Server
	if s.statusAddress != "" {
		status = s.statusServer(st, requests)
		all = append([]*http.Server{status}, all...)
	}
	for _, server := range all {
		what := "side server"
		if server == status {
			what = "status"
		}
		one, err := s.serveSide(what, server)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}
