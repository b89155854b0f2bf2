package admin

import (
	"bytes"
	"encoding/json"
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
	mediaHTML = "text/html; charset=UTF-8"
)

func text(status int, body string) answer {
	return answer{status: status, media: mediaText, body: []byte(body)}
}

func ok() answer { return text(http.StatusOK, "OK\n") }

// encode is JSON without the escapes that only HTML needs.
func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	err := encoder.Encode(v)
	return b.Bytes(), err
}

// indented is JSON in Envoy's form: one blank per level.
func indented(v any) answer {
	b, err := encode(v, " ")
	if err != nil {
		return text(http.StatusInternalServerError, err.Error())
	}
	return answer{status: http.StatusOK, media: mediaJSON, body: b}
}

// write sends the response with Envoy's header fields, in lower case as in Envoy: scripts use grep on them.
func (a answer) write(w http.ResponseWriter) {
	h := w.Header()
	h["content-type"] = []string{a.media}
	h["Content-Type"] = nil // no second one by net/http
	h["cache-control"] = []string{"no-cache, max-age=0"}
	h["x-content-type-options"] = []string{"nosniff"}
	setOrigin(h)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body)
	// Before the handler returns, so that the length is still unknown: Envoy's responses are chunked.
	_ = http.NewResponseController(w).Flush()
	if a.then != nil {
		a.then()
	}
}

// writeBadRequest is the response of Envoy's codec to malformed HTTP.
func writeBadRequest(w http.ResponseWriter) {
	const body = "Bad Request"
	h := w.Header()
	h["content-type"] = []string{"text/plain"}
	h["Content-Type"] = nil
	h["Connection"] = []string{"close"}
	setOrigin(h)
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write([]byte(body))
}

func setOrigin(h http.Header) {
	h["date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	h["Date"] = nil
	h["server"] = []string{"envoy"}
}
