package inject

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Sidecar is the form of the sidecar.
type Sidecar string

const (
	// Native is an init container with restartPolicy Always: started before the app and ended after it, by Kubernetes
	// 1.29 and later.
	Native  Sidecar = "native"
	Classic Sidecar = "classic" // an ordinary container
)

// Proxy selects the proxy between the pod and its clients.
type Proxy string

const (
	Pipe    Proxy = "pipe"    // lastcall's own, with the pod's traffic captured
	Envoy   Proxy = "envoy"   // a real Envoy that lastcall supervises, with the pod's traffic captured
	Sockets Proxy = "sockets" // none: the app's preStop watches its sockets
	Istio   Proxy = "istio"   // Istio's own sidecar: lastcall completes its termination
)

// Capture is the way in which a pod's traffic is redirected to the sidecar.
type Capture string

const (
	CaptureSidecar Capture = "sidecar" // by the sidecar at its start, which then gives up every right for good
	CaptureInit    Capture = "init"    // by an init container: no container that keeps running has a capability
)

// Options are the same for all pods of a cluster, except Token and Namespace.
type Options struct {
	Image      string            // of the sidecar and of the init containers; required
	EnvoyImage string            // has lastcall as /lastcall, and envoy in its PATH; empty: pods cannot have Envoy
	PullPolicy corev1.PullPolicy // of the images; empty is Kubernetes' own default
	Sidecar    Sidecar           // the default form; empty is Native
	Capture    Capture           // the default kind of capture; empty is CaptureSidecar
	MeshConfig string            // the text of Istio's, whose defaultConfig applies to all pods; empty for none
	LogFormat  string            // of the sidecar, text or json; empty is text

	// Token authorizes the pod's preStop hook: at least 16 random letters and digits. It is an argument so that the same
	// pod and options give the same result. A pod that already has one keeps it.
	Token string

	// ByDefault is the default for pods and namespaces without a setting: false in a webhook, true for lastcallctl inject.
	ByDefault bool

	Offline   bool      // the pod is in a manifest: other injectors may add to it later
	Job       bool      // the pod belongs to a Job, even if its ownerReferences do not show it yet
	Namespace Namespace // that the pod will be in
	Learned   Learned   // from earlier terminations of the workload; the pod's annotation has precedence
}

// Learned has the findings about a workload, without its annotations.
type Learned struct {
	App drain.AppEnd // AppAuto: nothing
	Why string       // the evidence, as the end of a sentence: "its last 3 pods closed their connections after SIGTERM"
}

// Namespace is the pod's namespace.
type Namespace = pod.Namespace

// Outcome is the result for a pod.
type Outcome string

const (
	Injected     Outcome = pod.Injected
	LeftAlone    Outcome = "left alone" // injection is enabled but not possible
	NotRequested Outcome = "not asked"
)

// Result is the outcome and its reason.
type Result struct {
	Outcome Outcome

	// Proxy and Sidecar are the ones in force, when Injected.
	Proxy   Proxy
	Sidecar Sidecar

	// Reason of LeftAlone and NotRequested.
	Reason string

	Err   error    // the error in the pod's own settings, if that is the reason
	Notes []string // messages for the pod's owner, one sentence each
}

// Annotations by which a pod configures lastcall; AnnotationInject is also a label of pods and namespaces.
const (
	AnnotationInject = "lastcall.dev/inject"

	annotationProxy           = "lastcall.dev/proxy"
	annotationSidecar         = "lastcall.dev/sidecar"
	annotationCapture         = "lastcall.dev/capture"
	annotationPreStop         = "lastcall.dev/pre-stop"
	annotationPorts           = "lastcall.dev/ports"
	annotationUntil           = "lastcall.dev/until"
	annotationLinkerdShutdown = "lastcall.dev/linkerd-shutdown"
	annotationIgnoreInbound   = "lastcall.dev/ignore-inbound-ports"
	annotationQuietTime       = "lastcall.dev/quiet-time"
	annotationIdleGrace       = "lastcall.dev/idle-grace"
	annotationMargin          = "lastcall.dev/last-call-margin"
	annotationStreams         = "lastcall.dev/streams"
	annotationCompat          = "lastcall.dev/compat"
	annotationRestartWait     = "lastcall.dev/restart-wait"
	annotationApp             = "lastcall.dev/app"
	annotationCPU             = "lastcall.dev/cpu"
	annotationCPULimit        = "lastcall.dev/cpu-limit"
	annotationMemory          = "lastcall.dev/memory"
	annotationMemoryLimit     = "lastcall.dev/memory-limit"

	annotationDefaultContainer = "kubectl.kubernetes.io/default-container"

	// On every injected pod.
	LabelInjected      = pod.LabelInjected
	LabelInjectedValue = pod.LabelInjectedValue

	// Written by the injection.
	AnnotationStatus = pod.AnnotationStatus
	AnnotationNotes  = "lastcall.dev/notes"
)

// Keys are the annotations by which a pod configures lastcall, and those that lastcall writes.
func Keys() []string {
	return []string{
		AnnotationInject, annotationProxy, annotationSidecar, annotationCapture, annotationPreStop, annotationPorts,
		annotationUntil, annotationLinkerdShutdown,
		annotationIgnoreInbound, pod.AnnotationMinimumDrain, annotationQuietTime, annotationIdleGrace, annotationMargin,
		annotationStreams, annotationCompat, annotationRestartWait,
		annotationApp, annotationCPU, annotationCPULimit, annotationMemory, annotationMemoryLimit,
		AnnotationStatus, AnnotationNotes,
	}
}

// Names of the added parts.
const (
	containerCapture = "lastcall-capture"
	containerCopy    = "lastcall-copy"
	volumePodInfo    = "lastcall-podinfo"
	volumeBinary     = "lastcall-bin"

	mountPodInfo = "/etc/istio/pod"
	mountBinary  = "/lastcall-bin" // not /lastcall: many images have that as a file, which no volume can be mounted on
)
