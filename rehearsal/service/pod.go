package service

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Pod has a manifest's settings for the end of its pods.
type Pod struct {
	strategy.Service
	Workload  string        // "Deployment shop/web"; empty: no manifest
	Grace     time.Duration // terminationGracePeriodSeconds
	Container string        // the one that serves
	Missing   []string      // variables whose values the manifest lacks
	Notes     []string      // settings of the manifest that the rehearsal leaves out
}

// DefaultGrace is terminationGracePeriodSeconds' default.
const DefaultGrace = 30 * time.Second
