// Package e2e shows lastcall on a real Kubernetes node (lab/e2e/cluster): rollouts under load, and the ways in which
// pods end there. Its tests have the build tag e2e; make e2e runs them. Package mesh has the published experiment.
package e2e
