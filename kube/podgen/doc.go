// Package podgen makes pods such as clusters have them, for tests and benchmarks of programs that read pods: the same
// for the same seed, and valid for the API server of Kubernetes 1.34 and later.
//
// Half of a pod comes from a shape (shapes.yaml), written after what well-known charts and
// operators deploy: a database with an init container and exec probes, an ingress with hostPorts and a preStop, a node
// agent with hostNetwork, a job, a pod for Windows. The other half is varied (vary.yaml): every field that an injector
// has to live with, each with a probability of its own.
//
// Some of the pods cannot be injected, on purpose: see kube/inject's reasons for leaving a pod alone.
package podgen
