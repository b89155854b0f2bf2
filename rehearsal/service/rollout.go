package service

import (
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

const rolloutReplicas = 3

// Rollout is options for pods of the built-in app that are replaced one after another, for so long, under a load like a
// service's: mostly fast requests, some slow ones, some with a body; 0.25 s on average.
func Rollout(rate float64, lasting time.Duration) Options {
	o := Options{IsBuiltIn: true, Replicas: rolloutReplicas, Lasting: lasting, Options: load.Options{Rate: rate}}
	add := func(weight int, method, path, body string) {
		request := traffic.Request{Method: method, Path: path, Body: body}
		o.Requests = append(o.Requests, load.Request{Weight: weight, Request: request})
	}
	add(40, "GET", "/get", "")
	add(14, "GET", "/bytes/2048", "")
	add(8, "GET", "/bytes/65536", "")
	add(8, "GET", "/stream/20", "")
	add(5, "POST", "/anything", "the body of a form")
	add(7, "GET", "/delay/0.1", "")
	add(7, "GET", "/delay/0.5", "")
	add(5, "GET", "/delay/1", "")
	add(2, "GET", "/drip?duration=2&numbytes=20&delay=0", "")
	add(2, "GET", "/delay/3", "")
	add(2, "GET", "/delay/5", "")
	return o
}

// rolloutStrategies are those of a rollout of the built-in app.
func rolloutStrategies() []strategy.Strategy {
	return []strategy.Strategy{
		{Name: lastcallName, Sidecar: strategy.Lastcall, App: strategy.Exits,
			Words: "lastcall wait as preStop; the app exits at SIGTERM"},
		{Name: "istio-default", Sidecar: strategy.Fixed, TerminationDrain: 5 * time.Second, App: strategy.ClosesListener,
			Words: "terminationDrainDuration of 5 s; the app closes its listener at SIGTERM, then finishes"},
		{Name: "istio-exit-on-zero", Sidecar: strategy.ExitOnZero, App: strategy.ClosesListener,
			Words: "EXIT_ON_ZERO_ACTIVE_CONNECTIONS; the app closes its listener at SIGTERM, then finishes"},
		{Name: "prestop-sleep-5", Sidecar: strategy.Fixed, TerminationDrain: 5 * time.Second, Sleep: 5 * time.Second,
			App:   strategy.ClosesListener,
			Words: "Istio's default after a preStop sleep of 5 s on app and proxy; the app finishes"},
		{Name: "none", Sidecar: strategy.NoSidecar, App: strategy.Exits,
			Words: "no sidecar and no hook; the app exits at SIGTERM"},
	}
}
