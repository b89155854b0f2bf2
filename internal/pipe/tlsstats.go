package pipe

import "time"

// TLSStats are those of a listener that ends TLS, since the start.
type TLSStats struct {
	Full, Resumed  uint64    // handshakes
	Reloads        uint64    // readings of the certificate's files
	ReloadFailures uint64    // of them, those that changed nothing because something is wrong
	NotAfter       time.Time // of the certificate in force
	failures       [failures]uint64
}

// Failures names each reason for which handshakes fail, and how many have.
func (s *TLSStats) Failures(yield func(reason string, count uint64) bool) {
	for f, n := range s.failures {
		if !yield(failure(f).String(), n) {
			return
		}
	}
}

// stats reads the counters; nil without TLS.
func (t *termination) stats() *TLSStats {
	if t == nil {
		return nil
	}
	s := &TLSStats{
		Full:           t.shaken[0].Load(),
		Resumed:        t.shaken[1].Load(),
		ReloadFailures: t.reloads[1].Load(),
		NotAfter:       t.files.Leaf().NotAfter,
	}
	s.Reloads = t.reloads[0].Load() + s.ReloadFailures
	for i := range t.failures {
		s.failures[i] = t.failures[i].Load()
	}
	return s
}
