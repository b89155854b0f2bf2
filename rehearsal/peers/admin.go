package peers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// admin is an Envoy's admin API, as far as peers use it.
type admin interface {
	// post calls path. An answer that is not 200 is an error.
	post(ctx context.Context, path string) error
	// get reads path likewise.
	get(ctx context.Context, path string) ([]byte, error)
}

// adminAt is the API at host:port.
type adminAt string

func (a adminAt) post(ctx context.Context, path string) error {
	_, err := a.call(ctx, http.MethodPost, path)
	return err
}

func (a adminAt) get(ctx context.Context, path string) ([]byte, error) {
	return a.call(ctx, http.MethodGet, path)
}

// adminLimit bounds an answer.
const adminLimit = 8 << 20

func (a adminAt) call(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+string(a)+path, nil)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{DisableKeepAlives: true}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, adminLimit))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return body, err
}

// statLines calls f with each line "name: value" of /stats.
func statLines(body []byte, f func(name string, value int)) {
	for line := range strings.Lines(string(body)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if value, err := strconv.Atoi(text); err == nil {
			f(name, value)
		}
	}
}
