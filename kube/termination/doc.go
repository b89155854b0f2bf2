// Package termination describes how a pod ends, as data: its containers in the order in which they stop, each with its
// preStop hook, its stop signal and what it does at that signal; the mesh and its timers, each with its source; and, for
// given traffic, when each container gets SIGTERM and SIGKILL, until when new connections are accepted, and when requests
// in flight are cut. Of is a pure function of the pod's manifest.
//
// The rules are the kubelet's (killContainersWithSyncResult and killContainer of pkg/kubelet/kuberuntime):
//
//   - All preStop hooks begin at once. A hook's time is part of the grace period.
//   - A container gets its stop signal when its hook has ended; a native sidecar (KEP-753) also waits until the containers
//     before it have ended.
//   - SIGKILL comes when the rest of the grace period has passed, whole seconds of the hook subtracted, at least 2 s.
//
// The proxies' rules are those of their own sources: drain's for lastcall and Istio's agent, docs/linkerd.md and
// docs/other-meshes.md for the others.
package termination
