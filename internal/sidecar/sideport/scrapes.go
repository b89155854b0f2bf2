package sideport

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	// maxScrapes is for a pair of Prometheus servers and people with curl.
	maxScrapes = 8

	// maxScrapeTime bounds the timeout that a scraper may request.
	maxScrapeTime = time.Minute
)

// Scrapes bounds the concurrent scrapes of h, and the time of each to the scraper's timeout. If there is one too many,
// the oldest of the address with the most is ended.
func Scrapes(h http.Handler) http.Handler {
	bounded := atMost(maxScrapes, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), min(maxScrapeTime, max(WriteTime, ScrapeTimeout(r))))
		defer cancel()
		until, _ := ctx.Deadline()
		_ = http.NewResponseController(w).SetWriteDeadline(until)
		bounded.ServeHTTP(w, r.WithContext(ctx))
	})
}

// atMost bounds the number of concurrent requests. One that has to go is cancelled, and its connection closed, which
// ends a write that waits for the peer.
func atMost(limit int, h http.Handler) http.Handler {
	under := NewSlots(limit)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		conn, _ := ctx.Value(connKey{}).(net.Conn)
		defer under.Take(r.RemoteAddr, 1, func() {
			if cancel(); conn != nil {
				_ = conn.Close()
			}
		}).Release()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ScrapeTimeout is the scraper's timeout; 0 when it does not send one.
func ScrapeTimeout(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, maxScrapeTime.Seconds()) * float64(time.Second))
}
