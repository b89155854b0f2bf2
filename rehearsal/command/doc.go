// Package command has the commands of a rehearsal. Two programs mount them: lastcallctl, and rehearse, which compiles
// in seconds because it imports nothing from Kubernetes.
package command

const rehearseShort = "Show what a client gets under each way of stopping a pod"
