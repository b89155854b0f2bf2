package traffic

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"
)

// Forward sends a request of another client to a pod, as a proxy does, and returns the head of the response; its body
// is read and closed by the caller, and broken is called if it ends in an error. The outcome has a Failure if there is
// none.
func (c *Client) Forward(req *http.Request, broken func(error)) (*http.Response, Outcome) {
	o := Outcome{Began: time.Now()}
	ctx := req.Context()
	k := c.connect(ctx, Request{}, &o)
	if k == nil {
		return nil, o
	}
	stop := context.AfterFunc(ctx, func() { _ = k.SetDeadline(time.Unix(1, 0)) })
	resp, failure, err := k.exchange(req)
	if err != nil {
		stop()
		_ = k.Close()
		o.fail(ctx, err, failure)
		return nil, o
	}
	o.First, o.Status = time.Now(), resp.StatusCode
	resp.Body = &forwarded{resp.Body, broken, func(isWhole bool) {
		if stop() && isWhole && !resp.Close {
			c.keep(k)
		} else {
			_ = k.Close()
		}
	}}
	return resp, o
}

// exchange sends a request, and reads the head of the response.
func (k *kept) exchange(req *http.Request) (*http.Response, Failure, error) {
	if err := req.Write(k); err != nil {
		return nil, Ended, err
	}
	if _, err := k.r.Peek(1); err != nil {
		return nil, Ended, err
	}
	resp, err := http.ReadResponse(k.r, req)
	return resp, Truncated, err
}

// forwarded is the body of a response that Forward has returned.
type forwarded struct {
	io.ReadCloser
	broken  func(error)
	release func(isWhole bool) // nil once it has been called
}

func (b *forwarded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.end(true)
	} else if err != nil {
		b.broken(err)
	}
	return n, err
}

func (b *forwarded) Close() error {
	b.end(false)
	return nil
}

func (b *forwarded) end(isWhole bool) {
	if b.release != nil {
		b.release(isWhole)
		b.release = nil
	}
}

// CloseIdle closes the kept connections to pods that are no targets any longer.
func (c *Client) CloseIdle() {
	targets := c.Targets()
	c.mu.Lock()
	defer c.mu.Unlock()
	for address, list := range c.idle {
		if slices.Contains(targets, address) {
			continue
		}
		for _, k := range list {
			_ = k.Close()
		}
		delete(c.idle, address)
	}
}
