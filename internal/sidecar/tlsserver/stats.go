package tlsserver

import "time"

// Stats are counters since the start.
type Stats struct {
	Full, Resumed  uint64    // handshakes
	Reloads        uint64    // of the certificate's files
	ReloadFailures uint64    // of them, those that have changed nothing because of an error
	NotAfter       time.Time // of the certificate in use
	failures       [reasons]uint64
}

// Failures yields each reason and how many handshakes have failed for it.
func (s *Stats) Failures(yield func(reason string, count uint64) bool) {
	for r, n := range s.failures {
		if !yield(Reason(r).String(), n) {
			return
		}
	}
}

// Stats reads the counters; nil without TLS.
func (s *Server) Stats() *Stats {
	if s == nil {
		return nil
	}
	sum := &Stats{
		Full:           s.handshakes[0].Load(),
		Resumed:        s.handshakes[1].Load(),
		ReloadFailures: s.reloads[1].Load(),
		NotAfter:       s.files.Leaf().NotAfter,
	}
	sum.Reloads = s.reloads[0].Load() + sum.ReloadFailures
	for i := range s.failures {
		sum.failures[i] = s.failures[i].Load()
	}
	return sum
}
