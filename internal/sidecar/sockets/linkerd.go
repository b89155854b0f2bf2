package sockets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// tally has the counters of linkerd's proxy for a port of the app: requests, and their ends. A request whose client
// leaves before the response begins has no end, nor has one that was answered by 101: the bytes behind that are not
// counted.
type tally struct{ begun, ended uint64 }

// askLinkerd looks for ports without a request in flight until the watch ends. The proxy counts on while it writes a
// page: the counts of one belong together if no request has begun until the next.
func (p *Plane) askLinkerd(w *sockdiag.Loop) {
	for last, failed := map[uint16]tally(nil), false; ; {
		began := time.Now()
		text, err := p.kernel.linkerd(p.o.Linkerd, http.MethodGet, "/metrics")
		page, took := parseTallies(text), time.Since(began)
		if len(page) == 0 && !failed {
			failed = true
			p.o.Log.Warn("linkerd's proxy does not show inbound_http_requests_total; until it does, the sockets alone show what is busy", "error", err)
		}
		p.mu.Lock()
		if p.watch != w {
			p.mu.Unlock()
			return
		}
		for port, t := range last {
			if t.begun == t.ended && page[port] == t {
				p.ledger.answered[port] = began
			}
		}
		_, _ = p.look() // an error is announced as a change
		p.mu.Unlock()
		last = page
		time.Sleep(min(max(200*time.Millisecond, 50*took), 500*time.Millisecond))
	}
}

var linkerdTransport = &http.Transport{DialContext: tcp.DialLoopback, DisableKeepAlives: true, DisableCompression: true}

// askAdmin asks the admin server of linkerd's proxy.
func askAdmin(port uint16, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	at := &url.URL{Scheme: "http", Host: fmt.Sprint("127.0.0.1:", port), Path: path}
	resp, err := linkerdTransport.RoundTrip((&http.Request{Method: method, URL: at,
		Header: http.Header{}}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, at, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, 8<<20)) // 140 kB is usual
	if err == nil && resp.StatusCode == http.StatusOK {
		return body, nil
	}
	return nil, errors.Join(fmt.Errorf("%s %s: %s: %.200s", method, at, resp.Status, body), err)
}

// tallyLine is a counter of linkerd's. Its request_total would be wrong: it leaves out a request with a body until some
// of that has come, such as a gRPC stream on which the app speaks first.
var tallyLine = regexp.MustCompile(`(?m)^inbound_(?:http|grpc)_(requests|statuses)_total\{(?:.*,)?parent_port="(\d+)"(.*)\} (\d+)$`)

func parseTallies(page []byte) map[uint16]tally {
	out := make(map[uint16]tally)
	for _, line := range tallyLine.FindAllSubmatch(page, -1) {
		port, _ := strconv.ParseUint(string(line[2]), 10, 16)
		n, _ := strconv.ParseUint(string(line[4]), 10, 64)
		t := out[uint16(port)]
		if string(line[1]) == "requests" {
			t.begun += n
		} else if !bytes.Contains(line[3], []byte(`status="101"`)) {
			t.ended += n
		}
		out[uint16(port)] = t
	}
	return out
}
