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
	}
	dial := func(host string) <-chan result {
		done := make(chan result)
		go func() {
			conn, err := d.DialContext(ctx, network, net.JoinHostPort(host, port))
			select {
			case done <- result{conn, err}:
			case <-ctx.Done():
				if conn != nil {
					_ = conn.Close()
				}
			}
		}()
		return done
	}
	late := time.After(fallbackDelay)
	var by6 <-chan result
	for by4 := dial(host); by4 != nil || by6 != nil; {
		var r result
		select {
		case r = <-by4:
			by4, err = nil, r.err
		case r = <-by6:
			by6 = nil
		case <-late:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.conn != nil {
			return r.conn, nil
		}
		if late != nil {
			late, by6 = nil, dial("::1")
		}
	}
	return nil, err
}
