package service

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Pod is what a manifest states about the end of its pods.
type Pod struct {
	strategy.Service
	Workload  string        // "Deployment shop/web"; empty: no manifest
	Grace     time.Duration // terminationGracePeriodSeconds
	Container string        // the one that serves
	Missing   []string      // variables whose values the manifest lacks
	Notes     []string      // what the manifest has and the rehearsal leaves out
}

// DefaultGrace is terminationGracePeriodSeconds' default.
const DefaultGrace = 30 * time.Second
