package admin

import (
	"net/http"
	"time"
)

// answer is the response of a command.
type answer struct {
	status int
	media  string
	body   []byte
	then   func() // runs after the response was sent; may be nil
}

const (
	mediaText = "text/plain; charset=UTF-8"
	mediaJSON = "application/json"
)

func text(status int, body string) answer {
	return answer{status: status, media: mediaText, body: []byte(body)}
}

func ok() answer { return text(http.StatusOK, "OK\n") }

// write sends the response with Envoy's header fields, in lower case as in Envoy: scripts use grep on them.
func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h["content-type"] = []string{a.media}
	h["Content-Type"] = nil // no second one by net/http
	h["cache-control"] = []string{"no-cache, max-age=0"}
	h["x-content-type-options"] = []string{"nosniff"}
	h["date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	h["Date"] = nil
	h["server"] = []string{"envoy"}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
	// Before the handler returns, so that the length is still unknown: Envoy's responses are chunked.
	_ = http.NewResponseController(w).Flush()
	if a.then != nil {
		a.then()
	}
}
