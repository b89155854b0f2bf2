// Package istio has the numbers that Istio fixes for its sidecars, and that lastcall's sidecar uses too (istio.io,
// "Ports used by Istio").
package istio

import (
	"net/netip"
	"time"
)

// Ports.
const (
	AdminPort    = 15000 // Envoy's admin API
	OutboundPort = 15001 // where the app's captured connections arrive
	DebugPort    = 15004
	InboundPort  = 15006 // where the clients' captured connections arrive
	HBONEPort    = 15008
	StatusPort   = 15020 // the agent's
	HealthPort   = 15021
	DNSPort      = 15053
	MetricsPort  = 15090 // Envoy's
)

// MinimumDrain is the default of MINIMUM_DRAIN_DURATION. lastcall's own is drain.DefaultMinimumDrain.
const MinimumDrain = 5 * time.Second

// ProxyID is the user and the group of the sidecar: its connections are not captured.
const ProxyID = 1337

// Source4 and Source6 are the addresses from which Istio's Envoy connects to the app. Source6 exists only if Istio's
// init container has added it to the loopback interface.
var (
	Source4 = netip.MustParseAddr("127.0.0.6")
	Source6 = netip.MustParseAddr("::6")
)
