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

	// maxScrapeTime bounds what a scraper may ask for.
	maxScrapeTime = time.Minute
)

// Scrapes bounds how many answers of h are under way at once, and how long each
// takes: as long as the scraper waits for it. When there is one too many, the oldest
// of the address with the most is ended.
func Scrapes(h http.Handler) http.Handler {
	under := newCrowd(maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), min(maxScrapeTime, max(WriteTime, ScrapeTimeout(r))))
		defer cancel()
		until, _ := ctx.Deadline()
		_ = http.NewResponseController(w).SetWriteDeadline(until)
		c, _ := r.Context().Value(connKey{}).(net.Conn)
		g := under.admit(r.RemoteAddr, func() {
			cancel()
			if c != nil { // a write that waits for the scraper ends, too
				_ = c.Close()
			}
		})
		defer g.leave()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ScrapeTimeout is what the scraper grants; 0 when it does not say.
func ScrapeTimeout(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, maxScrapeTime.Seconds()) * float64(time.Second))
}
