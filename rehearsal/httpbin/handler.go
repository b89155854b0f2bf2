package httpbin

import (
	"net/http"
	"time"

	"github.com/mccutchen/go-httpbin/v2/httpbin"
)

// DefaultMaxDelay is httpbin's own limit of /delay.
const DefaultMaxDelay = 10 * time.Second

// maxBody is the limit of bodies, bytes; httpbin's own is too small to fill a socket's buffers.
const maxBody = 100 << 20

// NewHandler returns the app's paths. maxDelay is the longest time that an answer may take.
func NewHandler(maxDelay time.Duration) http.Handler {
	return httpbin.New(httpbin.WithMaxDuration(maxDelay), httpbin.WithMaxBodySize(maxBody))
}
