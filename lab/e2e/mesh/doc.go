// Package mesh has the tests with a real Istio: make e2e-mesh. up installs Istio on the node of the end-to-end tests.
package mesh
