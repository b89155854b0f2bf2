// Package tlsload loads a server over TLS: by a new connection for each request, or by kept ones at a slow, even rate.
package tlsload

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Handshakes is a load of new connections.
type Handshakes struct {
	Address     string      // host:port
	Connections int         // at a time
	Config      *tls.Config // of the clients
	Resume      bool        // each client continues its last session
	Duration    time.Duration
}

// Result is what was done.
type Result struct {
	Requests, Resumed int // each with a handshake of its own; those that continued a session
	Took              time.Duration
	P50, P99          time.Duration // from the first SYN to the end of the answer
	Agreed            string        // version, key exchange and cipher suite of the last handshake
}

// Run lets each client connect, shake hands, make one request and disconnect, again and again until the time has ended.
// An answer other than 200 and a broken connection are errors. With Resume, a handshake that continues no session is
// one too, but for each client's first.
func (o Handshakes) Run(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Duration+answerTimeout)
	defer cancel()
	began := time.Now()
	var all sync.WaitGroup
	clients := make([]client, o.Connections)
	for i := range clients {
		c := &clients[i]
		c.config = o.Config.Clone()
		if o.Resume {
			c.config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}
		all.Go(func() {
			for c.failure == nil && time.Since(began) < o.Duration {
				c.failure = c.one(ctx, o.Address)
			}
		})
	}
	all.Wait()
	result := Result{Took: time.Since(began)}
	var took []time.Duration
	var failures []error
	for _, c := range clients {
		took, result.Resumed, failures = append(took, c.took...), result.Resumed+c.resumed, append(failures, c.failure)
		result.Agreed = c.agreed
		if missed := len(c.took) - c.resumed; o.Resume && missed > 1 {
			failures = append(failures, fmt.Errorf("%d of %d handshakes of a client continued no session", missed, len(c.took)))
		}
	}
	if err := errors.Join(failures...); err != nil {
		return Result{}, err
	}
	slices.Sort(took)
	result.Requests, result.P50, result.P99 = len(took), took[len(took)/2], took[len(took)*99/100]
	return result, nil
}

// answerTimeout bounds the last request.
const answerTimeout = 10 * time.Second

type client struct {
	config  *tls.Config
	took    []time.Duration // of each request
	resumed int
	agreed  string
	failure error
}

const request = "GET /get HTTP/1.1\r\nHost: app\r\nConnection: close\r\n\r\n"

func (c *client) one(ctx context.Context, address string) error {
	began := time.Now()
	dialed, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer dialed.Close()
	if err := dialed.SetDeadline(began.Add(answerTimeout)); err != nil {
		return err
	}
	conn := tls.Client(dialed, c.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("shake hands: %w", err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return fmt.Errorf("read a response: %w", err)
	}
	if !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) {
		return fmt.Errorf("read a response: %.40q", answer)
	}
	c.took = append(c.took, time.Since(began))
	state := conn.ConnectionState()
	if state.DidResume {
		c.resumed++
	}
	c.agreed = fmt.Sprintf("%s, %s, %s", tls.VersionName(state.Version), state.CurveID, tls.CipherSuiteName(state.CipherSuite))
	return nil
}
