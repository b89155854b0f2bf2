package inject

import (
	corev1 "k8s.io/api/core/v1"
)

// Sidecar is the way in which the sidecar stands in the pod.
type Sidecar string

const (
	// Native is an init container with restartPolicy Always: started before
	// the app and ended after it, by Kubernetes 1.29 and later.
	Native Sidecar = "native"

	// Classic is one container among the others.
	Classic Sidecar = "classic"
)

// Proxy is what stands between the pod and its callers.
type Proxy string

const (
	// Pipe is lastcall's own proxy, with the pod's traffic captured.
	Pipe Proxy = "pipe"

	// Envoy is a real one that lastcall supervises, with the pod's traffic captured.
	Envoy Proxy = "envoy"

	// Sockets is none: the app's preStop watches its sockets.
	Sockets Proxy = "sockets"

	// Istio is Istio's own sidecar: lastcall adds only what it lacks.
	Istio Proxy = "istio"
)

// Options are the same for all pods of a cluster, but for Token and Namespace.
type Options struct {
	// Image of the sidecar and of the init containers. Needed.
	Image string

	// EnvoyImage is the sidecar's where its proxy is Envoy: with lastcall at
	// /lastcall and envoy in its PATH. Empty: no pod can have that.
	EnvoyImage string

	// PullPolicy of the images; empty is Kubernetes' own default.
	PullPolicy corev1.PullPolicy

	// Sidecar for pods that do not say; empty is Native.
	Sidecar Sidecar

	// MeshConfig is the text of Istio's MeshConfig, whose defaultConfig holds for
	// all pods; empty for none.
	MeshConfig string

	// Token opens the pod's preStop hook: at least 16 letters and digits that nobody
	// can guess. It is taken, not made here, so that the same pod and options give
	// the same result. A pod that has one already keeps it.
	Token string

	// Resources of the sidecar for pods that do not say; nil is DefaultResources.
	Resources *corev1.ResourceRequirements

	// LogFormat of the sidecar, text or json; empty is text.
	LogFormat string

	// IsAsked is the answer for pods that say nothing in a namespace that says
	// nothing: false in a webhook, true where somebody injects by hand.
	IsAsked bool

	// Job says that the pod is a Job's, where its ownerReferences do not say so yet.
	Job bool

	// Namespace the pod will be in.
	Namespace Namespace
}

// Namespace is what the pod's namespace says.
type Namespace struct {
	Name   string
	Labels map[string]string
}

// Outcome is what became of a pod.
type Outcome string

const (
	Injected  Outcome = "injected"
	LeftAlone Outcome = "left alone" // injection was asked for, and is not possible
	NotAsked  Outcome = "not asked"
)

// Result says what was done, and why.
type Result struct {
	Outcome Outcome

	// Proxy and Sidecar are the ones in force, when Injected.
	Proxy   Proxy
	Sidecar Sidecar

	// Reason of LeftAlone and NotAsked, in words.
	Reason string

	// Err is what is wrong in the pod's own settings, when that is the reason.
	Err error

	// Notes are what the pod's owner should know, one sentence each.
	Notes []string
}

// The pod's own words to lastcall, as annotations; AnnotationInject is also a label,
// of pods and of namespaces.
const (
	AnnotationInject = "lastcall.dev/inject"

	annotationProxy         = "lastcall.dev/proxy"
	annotationSidecar       = "lastcall.dev/sidecar"
	annotationPreStop       = "lastcall.dev/pre-stop"
	annotationPorts         = "lastcall.dev/ports"
	annotationIgnoreInbound = "lastcall.dev/ignore-inbound-ports"
	annotationQuietTime     = "lastcall.dev/quiet-time"
	annotationIdleGrace     = "lastcall.dev/idle-grace"
	annotationMargin        = "lastcall.dev/last-call-margin"
	annotationCompat        = "lastcall.dev/compat"
	annotationRestartWait   = "lastcall.dev/restart-wait"
	annotationLogFormat     = "lastcall.dev/log-format"
	annotationCPU           = "lastcall.dev/cpu"
	annotationCPULimit      = "lastcall.dev/cpu-limit"
	annotationMemory        = "lastcall.dev/memory"
	annotationMemoryLimit   = "lastcall.dev/memory-limit"

	// LabelInjected is on every pod that was injected, with LabelInjectedValue: by it the API
	// server finds them for those who watch, and people with kubectl get pods -l.
	LabelInjected      = "lastcall.dev/injected"
	LabelInjectedValue = "true"

	// Written by the injection.
	AnnotationStatus = "lastcall.dev/status"
	AnnotationNotes  = "lastcall.dev/notes"
)

// Names of what is added.
const (
	containerSidecar = "lastcall"
	containerCapture = "lastcall-capture"
	containerCopy    = "lastcall-copy"
	volumePodInfo    = "lastcall-podinfo"
	volumeBinary     = "lastcall-bin"

	mountPodInfo = "/etc/istio/pod"
	mountBinary  = "/lastcall"

	istioProxy = "istio-proxy"
)

// proxyUser is the user and group whose traffic is never captured, Istio's.
const proxyUser int64 = 1337
