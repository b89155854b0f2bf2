package tcp

import (
	"context"
	"net"
	"time"
)

// fallbackDelay is how long 127.0.0.1 may take before ::1 is tried as well. Where it is no address of the pod, the
// kernel may send the SYN elsewhere, and no answer comes.
const fallbackDelay = 100 * time.Millisecond

// DialLoopback is net.Dialer's DialContext, except that ::1 is tried where 127.0.0.1 does not answer: the pod may not
// have that address, or its app may listen on ::1 alone.
func DialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "127.0.0.1" {
		return d.DialContext(ctx, network, address)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the one that is slower
	type result struct {
		conn net.Conn
		err  error
		is4  bool
	}
	results := make(chan result)
	dial := func(host string) {
		conn, err := d.DialContext(ctx, network, net.JoinHostPort(host, port))
		select {
		case results <- result{conn, err, host == "127.0.0.1"}:
		case <-ctx.Done():
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
	go dial("127.0.0.1")
	later := time.NewTimer(fallbackDelay)
	defer later.Stop()
	running, begun := 1, false
	for {
		select {
		case <-later.C:
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			if r.is4 {
				err = r.err
			}
			running--
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !begun {
			begun = true
			running++
			go dial("::1")
		}
		if running == 0 {
			return nil, err
		}
	}
}
