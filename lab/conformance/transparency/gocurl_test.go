package transparency

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// limit is how long a client waits for a response.
const limit = 5 * time.Second

// request is one of a client's words.
type request struct {
	method, path string
	body         []byte
	isChunked    bool
	expects      bool // 100-continue
	pause        time.Duration
}

// requests reads words.
func requests(words string) (out []request) {
	for word := range strings.FieldsSeq(words) {
		if ms, ok := strings.CutPrefix(word, "~"); ok {
			n, _ := strconv.Atoi(ms)
			out = append(out, request{pause: time.Duration(n) * time.Millisecond})
			continue
		}
		word, times, _ := strings.Cut(word, "*")
		method, path, _ := strings.Cut(word, "@")
		path, size, hasBody := strings.Cut(path, ":")
		r := request{method: method, path: path}
		if hasBody {
			r.isChunked, r.expects = strings.HasSuffix(size, "c"), strings.HasSuffix(size, "e")
			n, _ := strconv.Atoi(strings.TrimRight(size, "ce"))
			r.body = bytes.Repeat([]byte("x"), n)
		}
		n, _ := strconv.Atoi(times)
		for range max(n, 1) {
			out = append(out, r)
		}
	}
	return out
}

func answered(status int, body []byte) string {
	return fmt.Sprintf("%d:%d:%08x", status, len(body), crc32.ChecksumIEEE(body))
}

// goClient is net/http's.
func goClient(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), isH2 bool, url, words string) (out []string) {
	transport := &http.Transport{DialContext: dial, MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		ExpectContinueTimeout: limit, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!isH2)
	transport.Protocols.SetUnencryptedHTTP2(isH2)
	defer transport.CloseIdleConnections()
	for _, r := range requests(words) {
		if r.pause > 0 {
			time.Sleep(r.pause) // part of the behaviour
			continue
		}
		out = append(out, goOnce(ctx, transport, url, r))
	}
	return out
}

func goOnce(ctx context.Context, transport http.RoundTripper, url string, r request) string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var body io.Reader
	switch {
	case r.isChunked:
		body = io.MultiReader(bytes.NewReader(r.body)) // of a type without a length
	case r.body != nil:
		body = bytes.NewReader(r.body)
	}
	message, err := http.NewRequestWithContext(ctx, r.method, url+r.path, body)
	if err != nil {
		return "error:" + err.Error()
	}
	if r.expects {
		message.Header.Set("Expect", "100-continue")
	}
	response, err := transport.RoundTrip(message)
	if err != nil {
		return goError(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "error:timeout"
	case err != nil:
		return fmt.Sprint("truncated:", response.StatusCode)
	}
	return answered(response.StatusCode, data)
}

func goError(err error) string {
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "error:timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "error:connect"
	case errors.Is(err, io.EOF), strings.Contains(text, "server closed idle connection"):
		return "error:eof"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "error:reset" // of the last one: the transport has seen the reset before its writer did
	}
	return "error:protocol"
}

// curlCodes are curl's exit codes for errors without a head.
var curlCodes = map[string]string{"7": "connect", "28": "timeout", "52": "eof", "55": "reset", "56": "reset"}

// curl runs curl once for all words; it does not pause, so it has no rows of long pauses.
func (c *clients) curl(ctx context.Context, mode string, isH2 bool, url, words string) ([]string, error) {
	dir, err := os.MkdirTemp(scratch, "curl")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var args []string
	all := slices.DeleteFunc(requests(words), func(r request) bool { return r.pause > 0 })
	for i, r := range all {
		out := filepath.Join(dir, fmt.Sprint("out", i))
		if i > 0 {
			args = append(args, "--next")
		}
		args = append(args, "-s", "-k", "-m", fmt.Sprint(limit.Seconds()), "-o", out, "-w", "%{http_code} %{exitcode}\n")
		if isH2 {
			args = append(args, "--http2-prior-knowledge")
		}
		if r.method == http.MethodHead {
			args = append(args, "-I")
		} else {
			args = append(args, "-X", r.method)
		}
		if r.body != nil {
			file := filepath.Join(dir, fmt.Sprint("in", i))
			if err := os.WriteFile(file, r.body, 0o600); err != nil {
				return nil, err
			}
			args = append(args, "--data-binary", "@"+file)
		}
		if r.isChunked {
			args = append(args, "-H", "Transfer-Encoding: chunked")
		}
		if r.expects {
			args = append(args, "-H", "Expect: 100-continue")
		}
		args = append(args, url+r.path)
	}
	program, err := peers.Find("curl")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, program, args...)
	var text bytes.Buffer
	command.Stdout = &text
	if n := c.p.clients(mode); n != nil {
		err = n.Start(command)
	} else {
		err = command.Start()
	}
	if err != nil {
		return nil, err
	}
	_ = command.Wait() // each request has its own code
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != len(all) {
		return nil, fmt.Errorf("curl: %d results of %d: %s", len(lines), len(all), &text)
	}
	for i, line := range lines {
		status, code, _ := strings.Cut(line, " ")
		switch class := curlCodes[code]; {
		case code == "0":
			n, _ := strconv.Atoi(status)
			data, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint("out", i)))
			if all[i].method == http.MethodHead {
				data = nil // curl writes the head
			}
			lines[i] = answered(n, data)
		case class == "timeout":
			lines[i] = "error:timeout"
		case status != "000":
			lines[i] = "truncated:" + status
		case class != "":
			lines[i] = "error:" + class
		default:
			lines[i] = "error:protocol"
		}
	}
	return lines, nil
}
