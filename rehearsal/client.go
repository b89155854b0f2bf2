package rehearsal

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
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

// client sends a GET request and reads the response to its last byte.
type client func(ctx context.Context, url string) answer

// maxBody limits how much of a response is kept, bytes.
const maxBody = 1 << 20

// Clients by the names of --client.
const (
	clientGo   = "go"
	clientCurl = "curl"
)

func clientFor(name string, n *node.Node) (client, error) {
	switch name {
	case clientGo, "":
		return getGo, nil
	case clientCurl:
		path, err := exec.LookPath("curl")
		if err != nil {
			return nil, fmt.Errorf("--client curl: %w; install it, or use --client go", err)
		}
		return func(ctx context.Context, url string) answer { return getCurl(ctx, n, path, url) }, nil
	}
	return nil, fmt.Errorf("--client is %q: must be go or curl", name)
}

func getGo(ctx context.Context, url string) (a answer) {
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
	a.read(resp)
	return a
}

// read reads the response, and the clock at its last byte.
func (a *answer) read(resp *http.Response) {
	a.status = resp.StatusCode
	a.body, a.err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	a.last = time.Now()
}

// getCurl reads curl's output unbuffered (-N), so that the time of the last byte is not that of curl's exit, and undecoded
// (--raw), to detect a chunked body that ends early.
func getCurl(ctx context.Context, n *node.Node, path, url string) (a answer) {
	a.sent = time.Now()
	a.last = a.sent
	out, in, err := os.Pipe()
	if err != nil {
		a.err = err
		return a
	}
	defer func() { _ = out.Close() }()
	curl, err := n.Start(node.Command{Args: []string{path, "-sS", "-N", "-i", "--raw", "--http1.1", url}, Stdout: in})
	_ = in.Close() // curl has a copy
	if err != nil {
		a.err = err
		return a
	}
	defer context.AfterFunc(ctx, func() { _ = curl.Kill() })()
	resp, err := http.ReadResponse(bufio.NewReader(out), nil)
	a.last = time.Now()
	if err == nil {
		a.read(resp)
		_ = resp.Body.Close()
		_, _ = io.Copy(io.Discard, out)
	}
	if ending := curl.Ending(); ending != "exit 0" {
		a.err = errors.Join(a.err, fmt.Errorf("curl: %s", ending)) // the exit codes are in curl's manual
	}
	return a
}
