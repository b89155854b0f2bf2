// Package inject adds lastcall to a pod: the sidecar, the capture of its traffic, the
// hooks that end its containers in the right order.
//
// It promises: a pod that is not understood, or could not work afterwards, is left as it
// is but for an annotation (lastcall.dev/status) that says why; a pod never has two
// sidecars; injecting twice is injecting once, and what another injector has added
// in between gets its hook and its probes. Pod is a pure function: the hook's token
// comes from outside.
//
// # What is asked for
//
// lastcall.dev/inject: "true" or "false" as the pod's label, else as its annotation,
// else as the namespace's label; else Options.IsAsked. Nothing is ever injected into
// the cluster's own namespaces.
//
// # What is added
//
//	lastcall.dev/proxy: pipe     the sidecar (lastcall agent --capture), native or classic, and an init
//	                             container that captures the traffic (lastcall capture), the only one with
//	                             NET_ADMIN. The default.
//	lastcall.dev/proxy: envoy    the same with a real Envoy (Options.EnvoyImage), which the agent supervises.
//	lastcall.dev/proxy: sockets  no proxy: the app's preStop is lastcall wait --ports, whose binary an init
//	                             container copies in. Also where the namespace's pod security admits no capture.
//	lastcall.dev/proxy: istio    the same beside Istio's sidecar, which gets EXIT_ON_ZERO_ACTIVE_CONNECTIONS
//	                             and, if it is native and has lost it, its preStop. The default where
//	                             there is a container istio-proxy, or Istio's labels ask for one.
//
// The sidecar's settings are the pod's proxy.istio.io/config over the MeshConfig, as
// PROXY_CONFIG and, for proxyMetadata, as variables; the grace period is the pod's.
// The label lastcall.dev/injected: "true" marks what has been injected, for kube/events and for people.
//
// More, as annotations of the pod:
//
//	lastcall.dev/sidecar                native or classic (also sidecar.istio.io/nativeSidecar)
//	lastcall.dev/pre-stop               keep (default): an app's own preStop stays; replace: lastcall's takes
//	                                    its place; none: no app gets one
//	lastcall.dev/ports                  for sockets: the ports to watch, PORT[/PROTOCOL], comma-separated; default
//	                                    containerPorts, with the protocols that their names say (grpc-api, http2)
//	lastcall.dev/ignore-inbound-ports   ports whose connections never count
//	lastcall.dev/quiet-time, idle-grace, last-call-margin, compat, restart-wait
//	                                    LASTCALL_QUIET_TIME, _IDLE_GRACE, _LAST_CALL_MARGIN, _COMPAT, _RESTART_WAIT
//	lastcall.dev/cpu, memory, cpu-limit, memory-limit, log-format
//
// linkerd's shutdown-grace-period, kuma's sidecar-drain-time and consul's
// shutdown-grace-period-seconds shorten the time that the drain may take; linkerd's
// proxy-wait-before-exit-seconds is the minimum drain. lastcall.dev/notes says what
// was made of them.
//
// # The order in which the pod ends
//
// Kubernetes runs all preStop hooks at once when a pod is deleted, and ends each
// container when its own hook has returned; native sidecars come last, in reverse order
// (KEP-753). From this follows who gets a hook:
//
//   - An app without a preStop gets httpGet :15020/wait/TOKEN, asked by the kubelet: it
//     needs no shell and no binary in the app's image, and it returns when no inbound request
//     is left. So the app's SIGTERM comes when nobody talks to it any more. The token
//     keeps the rest of the network from draining the pod; who may read the pod's
//     manifest knows it.
//   - An app with an exec, sleep or httpGet preStop keeps it. Two hooks cannot be chained:
//     Kubernetes runs one handler, an exec would need a shell in the image, and the kubelet's own
//     sleep knows no second step. Its SIGTERM comes when its own hook has ended, drained or not. The
//     drain begins at the same moment all the same, by the sidecar, so that a hook that
//     only sleeps is covered; lastcall.dev/pre-stop: replace makes it exact. An httpGet hook
//     goes through the agent, so that it is no traffic that the drain would wait for.
//   - A native sidecar has such an httpGet hook itself, with a token of its own. It begins the
//     drain even if no app has our hook, or the app has crashed. SIGTERM comes when the apps are gone.
//   - A classic sidecar has none: its SIGTERM at the start begins the drain. With a
//     hook, SIGTERM would come when the drain is over, which the agent takes for the sign that the
//     app is gone.
//   - Beside a classic sidecar an app's hook is the program itself (exec), copied in by an init container:
//     it leaves a process that ends with the container, by which the sidecar knows how long the app needs
//     its way out. With shareProcessNamespace it sees that without, and the hook is httpGet.
//
// The kubelet also calls an app's hook when it restarts that container alone, after a failed liveness
// probe for example. The sidecar's own hook, or its SIGTERM, does not follow then: by that the agent
// (--sidecar native or classic) tells a restart from the end of the pod. In a pod with several app
// containers each hook names the container's ports (?ports=8080), so that the others are left alone.
//
// A native sidecar stands first among the init containers, behind the capture: the app's own init
// containers go through it, and it ends last. A classic one stands first among the
// containers, and its postStart holds the app back until it serves, unless
// holdApplicationUntilProxyStarts is false; the capture comes last among the init
// containers, which would otherwise have no network.
//
// A Job's pod ends when its app does: kubelet ends a native sidecar, the agent sees it as a
// classic one. Without a port it does not wait for callers (minimum drain and quiet time 0s).
package inject
