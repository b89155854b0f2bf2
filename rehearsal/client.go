package rehearsal

import (
	"context"
	"io"
	"net/http"
	"time"
)

// answer is what the client got.
type answer struct {
	sent   time.Time
	last   time.Time // of the last byte, or of the failure
	status int       // 0: no response
	body   []byte
	err    error // the failure, also in the middle of a body
}

// took is the response time as the client measures it.
func (a answer) took() time.Duration { return a.last.Sub(a.sent) }

// maxBody limits how much of a response is kept, bytes.
const maxBody = 1 << 20

// ask sends a GET request and reads the response to its last byte.
func ask(ctx context.Context, url string) (a answer) {
	a.sent = time.Now()
	defer func() { a.last = time.Now() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		a.err = err
		return a
	}
	// A new connection: net/http may retry on one that is kept alive.
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		a.err = err
		return a
	}
	defer func() { _ = resp.Body.Close() }()
	a.status = resp.StatusCode
	a.body, a.err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return a
}
