package load

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

const (
	// DefaultTimeout is how long a request may take.
	DefaultTimeout = time.Minute

	// MaxRate is the highest rate, requests a second.
	MaxRate = 5000.0
)

// Options are the user's choices for a load.
type Options struct {
	Requests    []Request     // at least one
	Rate        float64       // requests a second; 0: about two in flight, at most 20 a second
	Timeout     time.Duration // of a request; 0: DefaultTimeout
	Descriptors string        // file with the descriptors of gRPC services; empty: the server has reflection
}

// Check fills in defaults and returns all errors.
func (o *Options) Check() error {
	var errs []error
	if len(o.Requests) == 0 {
		errs = append(errs, errors.New("missing --request: a request that the app answers, as --request 'GET /'"))
	}
	if o.Rate < 0 || o.Rate > MaxRate {
		errs = append(errs, fmt.Errorf("--load is %g/s: must be more than 0, at most %g/s", o.Rate, MaxRate))
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	if o.Timeout < time.Second || o.Timeout > time.Hour {
		errs = append(errs, fmt.Errorf("--timeout is %v: must be 1s to 1h", o.Timeout))
	}
	return errors.Join(errs...)
}

// OptionError is about an option's value.
type OptionError struct{ Err error }

func (e OptionError) Error() string { return e.Err.Error() }

func (e OptionError) Unwrap() error { return e.Err }

// Request is a kind of request with its share of the load.
type Request struct {
	traffic.Request
	Weight int // at least 1
}

// RequestSyntax describes ParseRequest's argument, for --help.
const RequestSyntax = "'[WEIGHT] METHOD PATH [-H NAME:VALUE]… [-d BODY|@FILE]'"

// maxBody is the largest body of a request, bytes.
const maxBody = 16 << 20

// ParseRequest parses RequestSyntax. METHOD may also be SSE (an event stream without an end), WS (a WebSocket; BODY is
// a message sent after the handshake), GRPC, with PACKAGE.SERVICE/METHOD in place of PATH and a message as JSON, or
// TCP, with a quoted text in place of PATH: "PING\r\nQUIT\r\n".
func ParseRequest(text string) (Request, error) {
	r, err := parseRequest(text)
	if err != nil {
		return Request{}, fmt.Errorf("%w; must be %s", err, RequestSyntax)
	}
	return r, nil
}

func parseRequest(text string) (Request, error) {
	r := Request{Weight: 1}
	words, err := split(text)
	if err != nil {
		return r, err
	}
	if len(words) > 0 {
		if n, err := strconv.Atoi(words[0]); err == nil {
			if n < 1 || n > 1000 {
				return r, fmt.Errorf("weight %d is not 1 to 1000", n)
			}
			r.Weight, words = n, words[1:]
		}
	}
	if len(words) < 2 {
		return r, errors.New("method or path is missing")
	}
	method, target := words[0], words[1]
	if err := r.parseOptions(words[2:]); err != nil {
		return r, err
	}
	switch protocol := traffic.Protocol(method); protocol {
	case traffic.TCP:
		body, err := strconv.Unquote(`"` + strings.ReplaceAll(target, `"`, `\"`) + `"`)
		if err != nil {
			return r, errors.New("the text of TCP is not quoted as in Go or C")
		}
		r.Protocol, r.Body = protocol, body
		return r, nil
	case traffic.GRPC:
		r.Protocol = protocol
	case traffic.Events, traffic.WebSocket:
		r.Protocol, r.Method = protocol, http.MethodGet
	default:
		if method != strings.ToUpper(method) {
			return r, fmt.Errorf("method %s is not upper case", method)
		}
		r.Method = method
	}
	if r.Protocol == traffic.GRPC {
		target = "/" + strings.TrimPrefix(target, "/")
		if strings.Count(target, "/") != 2 || strings.HasSuffix(target, "/") {
			return r, fmt.Errorf("method %s is not PACKAGE.SERVICE/METHOD", target[1:])
		}
	}
	if !strings.HasPrefix(target, "/") {
		return r, fmt.Errorf("path %s does not begin with /", target)
	}
	r.Path = target
	return r, nil
}

func (r *Request) parseOptions(words []string) error {
	for len(words) > 0 {
		if len(words) == 1 {
			return fmt.Errorf("%s has no value", words[0])
		}
		value := words[1]
		switch words[0] {
		case "-H":
			name, v, found := strings.Cut(value, ":")
			if !found || strings.TrimSpace(name) == "" {
				return fmt.Errorf("header %q has no colon", value)
			}
			if r.Header == nil {
				r.Header = http.Header{}
			}
			r.Header.Add(strings.TrimSpace(name), strings.TrimSpace(v))
		case "-d":
			if file, found := strings.CutPrefix(value, "@"); found {
				body, err := readBody(file)
				if err != nil {
					return fmt.Errorf("read the body: %w", err)
				}
				value = string(body)
			}
			if len(value) > maxBody {
				return fmt.Errorf("the body has more than %d MiB", maxBody>>20)
			}
			r.Body = value
		default:
			return fmt.Errorf("unknown option %s", words[0])
		}
		words = words[2:]
	}
	return nil
}

// readBody reads a file of any kind, to one byte more than maxBody.
func readBody(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxBody+1))
}

// split splits text into words as a shell does, with single and double quotes; backslashes stay.
func split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	quote := rune(0)
	for _, c := range text {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, inWord = c, true
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	if quote != 0 {
		return nil, errors.New("a quote has no end")
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}
