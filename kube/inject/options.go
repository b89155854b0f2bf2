package inject

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Sidecar is the form of the sidecar.
type Sidecar string

const (
	// Native is an init container with restartPolicy Always: started before
	// the app and ended after it, by Kubernetes 1.29 and later.
	Native Sidecar = "native"

	// Classic is an ordinary container.
	Classic Sidecar = "classic"
)

// Proxy selects the proxy between the pod and its clients.
type Proxy string

const (
	// Pipe is lastcall's own proxy, with the pod's traffic captured.
	Pipe Proxy = "pipe"

	// Envoy is a real Envoy that lastcall supervises, with the pod's traffic captured.
	Envoy Proxy = "envoy"

	// Sockets means no proxy: the app's preStop watches its sockets.
	Sockets Proxy = "sockets"

	// Istio is Istio's own sidecar: lastcall completes its termination.
	Istio Proxy = "istio"
)

// Capture is the way in which a pod's traffic is redirected to the sidecar.
type Capture string

const (
	// CaptureSidecar: the sidecar itself, at its start. Its process then gives up every right for good.
	CaptureSidecar Capture = "sidecar"

	// CaptureInit is an init container, so that no container that keeps running has a capability in its specification.
	CaptureInit Capture = "init"

	// CaptureCNI is a network plugin of the node: no container of the pod has a capability.
	CaptureCNI Capture = "cni"
)

// Options are the same for all pods of a cluster, except Token and Namespace.
type Options struct {
	// Image of the sidecar and of the init containers. Required.
	Image string

	// EnvoyImage is the image of a sidecar with Envoy: lastcall is /lastcall in it, and envoy is in its PATH. Empty: pods
	// cannot have Envoy.
	EnvoyImage string

	// PullPolicy of the images; empty is Kubernetes' own default.
	PullPolicy corev1.PullPolicy

	// Sidecar is the default form; empty is Native.
	Sidecar Sidecar

	// Capture is the default kind of capture; empty is CaptureSidecar.
	Capture Capture

	// MeshConfig is the text of Istio's MeshConfig, whose defaultConfig applies to all pods; empty for none.
	MeshConfig string

	// Token authorizes the pod's preStop hook: at least 16 random letters and digits. It is an argument so that the same
	// pod and options give the same result. A pod that already has one keeps it.
	Token string

	// LogFormat of the sidecar, text or json; empty is text.
	LogFormat string

	// ByDefault is the default for pods and namespaces without a setting: false in a webhook, true for lastcallctl inject.
	ByDefault bool

	// Offline means that the pod is injected in a manifest: other injectors may add to it later. Manifest sets it.
	Offline bool

	// Job means that the pod belongs to a Job, even if its ownerReferences do not show it yet.
	Job bool

	// Namespace the pod will be in.
	Namespace Namespace

	// Learned has the findings of earlier terminations of the workload. The pod's annotation has precedence.
	Learned Learned
}

// Learned has the findings about a workload, without its annotations.
type Learned struct {
	App drain.AppEnd // AppAuto: nothing

	// Why is the evidence, as the end of a sentence: "its last 3 pods closed their connections after SIGTERM".
	Why string
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

	// Err is the error in the pod's own settings, if that is the reason.
	Err error

	// Notes are messages for the pod's owner, one sentence each.
	Notes []string
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

	// LabelInjected is on every injected pod.
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
