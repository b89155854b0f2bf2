// Package e2e shows lastcall on a real Kubernetes node (lab/e2e/cluster): the published experiment word for word,
// rollouts under load, and the ways in which pods end there. Its tests have the build tag e2e; make e2e runs them.
package e2e
