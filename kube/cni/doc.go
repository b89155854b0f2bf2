// Package cni is a chained network plugin (CNI) that captures the traffic of injected pods, and its installer. Such a
// pod needs no container with a capability: the container runtime calls the plugin, as root on the node, when it has
// made the pod's network and before it starts a container.
//
// It promises:
//
//   - The plugin needs nothing but the runtime: no API server, no credentials, no daemon. containerd and CRI-O pass a
//     pod's annotations to a plugin that declares the capability io.kubernetes.cri.pod-annotations. Injection marks its
//     pods by the annotation capture.AnnotationCNI; all others pass through unchanged, in the time that a process takes
//     to start.
//   - A marked pod is captured or does not start: an error ends the runtime's ADD, and the kubelet tries again and
//     creates an Event. If the runtime did not call the plugin at all, the pod's sidecar finds out itself (lastcall
//     capture --check), and does not start.
//   - The installer changes one file, the node's active network configuration: it adds its entry to the list of
//     plugins, and takes it out again; all other settings stay. Files are replaced by rename. The program is in place
//     before it is named.
//   - The installer stays while the DaemonSet does: a restart, an upgrade or a reboot leaves the node captured. Only
//     the removal of the DaemonSet takes the entry out.
//
// The program remains on the node after a removal: CRI-O ends a pod with the configuration with which it has started.
package cni
