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

// answer is what a client got.
type answer struct {
	asked  time.Time
	last   time.Time // the last byte was read, or the request broke
	status int       // 0: no response
	body   []byte
	err    error // what broke, also in the midst of a body
}

// took is how long it took, as the client sees it.
func (a answer) took() time.Duration { return a.last.Sub(a.asked) }

// client asks for url and reads the answer to its last byte.
type client func(ctx context.Context, url string) answer

// maxBody bounds what is kept of an answer.
const maxBody = 1 << 20

// Clients by the names of --client.
const (
	clientGo   = "go"
	clientCurl = "curl"
)

func clientFor(name string, n *node.Node) (client, error) {
	switch name {
	case clientGo, "":
		return askGo, nil
	case clientCurl:
		path, err := exec.LookPath("curl")
		if err != nil {
			return nil, fmt.Errorf("--client curl: %w; install it, or take --client go", err)
		}
		return func(ctx context.Context, url string) answer { return askCurl(ctx, n, path, url) }, nil
	}
	return nil, fmt.Errorf("--client is %q: accepted are go and curl", name)
}

func askGo(ctx context.Context, url string) (a answer) {
	a.asked = time.Now()
	defer func() { a.last = time.Now() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		a.err = err
		return a
	}
	// A connection of its own: one that is kept might be retried by net/http.
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

// read takes the response in. The clock is read in between: what follows the last
// byte is no part of it.
func (a *answer) read(resp *http.Response) {
	a.status = resp.StatusCode
	a.body, a.err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	a.last = time.Now()
}

// askCurl reads what curl writes as it comes (-N), so that the last byte's
// moment is the byte's and not that of curl's end, and as it was sent (--raw), so that a
// chunked body that ends early is seen to.
func askCurl(ctx context.Context, n *node.Node, path, url string) (a answer) {
	a.asked = time.Now()
	a.last = a.asked
	out, in, err := os.Pipe()
	if err != nil {
		a.err = err
		return a
	}
	defer func() { _ = out.Close() }()
	curl, err := n.Start(node.Command{Args: []string{path, "-sS", "-N", "-i", "--raw", "--http1.1", url}, Stdout: in})
	_ = in.Close() // curl has its own
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
		a.err = errors.Join(a.err, fmt.Errorf("curl: %s", ending)) // curl's codes are told by its manual
	}
	return a
}
