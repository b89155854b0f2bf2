package capture

// AnnotationCNI marks a pod that the node's network plugin captures (kube/cni). Injection writes it. Its value is the
// agent's own ports, comma-separated; all other settings are the pod's further annotations.
const AnnotationCNI = "lastcall.dev/cni"

// NotCaptured begins the termination message of an agent whose pod the plugin has not captured.
const NotCaptured = "the pod's traffic is not captured"
