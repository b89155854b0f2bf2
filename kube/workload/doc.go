// Package workload reads a Deployment, StatefulSet, DaemonSet or Pod, waits for its rollouts, and triggers one.
package workload
