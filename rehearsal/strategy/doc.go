// Package strategy has the strategies of a rehearsal, which are ways to stop a pod, and starts the pods and gateways
// that show them: real processes on loopback.
package strategy
