package httpbin

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	maxStreamLines = 100       // httpbin's limit of /stream
	maxDripBytes   = 10 << 20  // httpbin's limit of /drip
	maxBytes       = 100 << 20 // of /bytes; httpbin's own is 100 KiB, too small to fill a socket's buffers
	maxDrip        = time.Hour // httpbin has no limit
)

// delay answers as /anything without a method, after a delay, or not at all if the client disconnects.
func delay(limit time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		value := r.PathValue("seconds")
		d, ok := seconds(value)
		if !ok {
			badRequest(w, "delay", value, "a number of seconds, not negative, fractions allowed")
			return
		}
		// Read the body first: net/http notices a client that disconnects only afterwards.
		out, err := withBody(about(r), r)
		if err != nil {
			badRequest(w, "request body", err.Error(), "a complete body")
			return
		}
		delete(out, "json") // httpbin's /delay has none
		if !sleep(r.Context(), min(d, limit)) {
			return
		}
		writeJSON(w, out)
	}
}

func status(w http.ResponseWriter, r *http.Request) {
	value := r.PathValue("code")
	code, err := strconv.Atoi(value)
	if err != nil || !isFinal(code) {
		badRequest(w, "status", value, "a status from 200 to 599")
		return
	}
	switch code {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Basic realm="Fake Realm"`)
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		w.Header().Set("Location", "/get")
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
}

// randomBytes sends N bytes with a Content-Length.
func randomBytes(w http.ResponseWriter, r *http.Request) {
	value := r.PathValue("n")
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 || n > maxBytes {
		badRequest(w, "bytes", value, "a number from 0 to "+strconv.Itoa(maxBytes))
		return
	}
	var seed [32]byte
	if s := r.URL.Query().Get("seed"); s != "" {
		copy(seed[:], s)
	} else {
		for i := range seed {
			seed[i] = byte(rand.Uint32())
		}
	}
	source := rand.NewChaCha8(seed)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	buf := make([]byte, 32<<10)
	for n > 0 {
		part := buf[:min(n, int64(len(buf)))]
		_, _ = source.Read(part) // never fails
		if _, err := w.Write(part); err != nil {
			return
		}
		n -= int64(len(part))
	}
}

// stream sends N lines, each in its own chunk.
func stream(w http.ResponseWriter, r *http.Request) {
	value := r.PathValue("n")
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 {
		badRequest(w, "stream", value, "a number of lines, not negative")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	out := about(r)
	rc := http.NewResponseController(w)
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for id := range min(n, maxStreamLines) {
		out["id"] = id
		if lines.Encode(out) != nil { // the client is gone: encoding cannot fail
			return
		}
		if rc.Flush() != nil {
			return
		}
	}
}

// drip sends numbytes stars, evenly over duration.
func drip(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	get := func(name, preset string) string {
		if v := q.Get(name); v != "" {
			return v
		}
		return preset
	}
	var durations [2]time.Duration
	for i, name := range []string{"duration", "delay"} {
		value := get(name, "2")
		d, ok := seconds(value)
		if !ok || d > maxDrip {
			badRequest(w, name, value, "a number of seconds from 0 to 3600, fractions allowed")
			return
		}
		durations[i] = d
	}
	numbytes, err := strconv.Atoi(get("numbytes", "10"))
	if err != nil || numbytes < 1 || numbytes > maxDripBytes {
		badRequest(w, "numbytes", q.Get("numbytes"), "a number from 1 to "+strconv.Itoa(maxDripBytes))
		return
	}
	code, err := strconv.Atoi(get("code", "200"))
	if err != nil || !isFinal(code) {
		badRequest(w, "code", q.Get("code"), "a status from 200 to 599")
		return
	}
	if !sleep(r.Context(), durations[1]) {
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(numbytes))
	w.WriteHeader(code)
	rc := http.NewResponseController(w)
	pause := durations[0] / time.Duration(numbytes)
	for range numbytes {
		if _, err := w.Write([]byte{'*'}); err != nil {
			return
		}
		// Without a pause no flush is needed.
		if pause > 0 && (rc.Flush() != nil || !sleep(r.Context(), pause)) {
			return
		}
	}
}

// isFinal: 1xx is no final response, and net/http panics on an invalid status.
func isFinal(code int) bool { return code >= 200 && code <= 599 }

// seconds parses a duration as httpbin does: a decimal number.
func seconds(s string) (time.Duration, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || f < 0 {
		return 0, false
	}
	return time.Duration(min(f*float64(time.Second), float64(math.MaxInt64/2))), true
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
