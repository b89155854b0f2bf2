// Package gateways ends the Envoys of other gateways on a real Kubernetes node (lab/e2e/cluster), side by side: as
// their control planes' manifests do it, and with the patches of deploy/gateways. Contour and Envoy Gateway are the
// real ones, as lab/peers/gateways builds them. The tests have the build tag e2e; make e2e-gateways runs them.
//
// As tests they are short. make e2e-gateways ARGS="-restarts 20 -rate 300 -samples 10" measures.
package gateways
