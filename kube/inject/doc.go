// Package inject adds lastcall to a pod: the sidecar, the capture of its traffic, and the hooks that end its containers
// in the right order.
//
// It promises: a pod that cannot be interpreted, or could not work afterwards, is unchanged except for an annotation
// (lastcall.dev/status) with the reason; a pod never has two sidecars; a second injection changes nothing, except
// because of what another injector added in between: its containers get their hooks and probes. Pod is a pure function:
// the token of the hook is an argument.
//
// # When a pod is injected
//
// The pod's label lastcall.dev/inject: "true" or "false" decides, else its annotation, else the namespace's label, else
// the default (Options.ByDefault). System namespaces are never injected.
//
// # What is added
//
//	lastcall.dev/proxy: pipe     the sidecar (lastcall agent --capture), native or classic, and what captures the
//	                             traffic: see lastcall.dev/capture below. The default.
//	lastcall.dev/proxy: envoy    the same with a real Envoy (Options.EnvoyImage), which the agent supervises.
//	lastcall.dev/proxy: sockets  no proxy: the app's preStop is lastcall wait --ports; an init container copies
//	                             the binary. Also used if the namespace's pod security does not admit the capture,
//	                             and in the pods of other meshes: linkerd, Istio ambient, Kuma, Consul, Dapr and
//	                             others, recognized by container, label or annotation, of the pod or its namespace.
//	lastcall.dev/proxy: istio    no proxy next to Istio's sidecar: the app's preStop is lastcall wait --envoy, which
//	                             watches Envoy; a classic istio-proxy gets the hook that drains it, a native one
//	                             keeps or gets back Istio's. The default if there is a container istio-proxy, or
//	                             if Istio's labels enable its injection.
//
// A second proxy is never added: with pipe or envoy such a pod gets sockets or istio too, and a pod whose traffic an
// unknown program redirects is left alone. If another injector adds its proxy after lastcall's, which lastcall could
// not know, the next call takes lastcall's out again. Next to Istio, the statistics that show which connections are
// busy are added to the pod's proxyStatsMatcher, which pilot-agent reads when it starts.
//
// The sidecar's settings are the pod's proxy.istio.io/config over the MeshConfig, as PROXY_CONFIG and, for
// proxyMetadata, as variables; the grace period is the pod's. The label lastcall.dev/injected: "true" marks injected
// pods, for kube/events and for people.
//
// Further annotations of the pod:
//
//	lastcall.dev/sidecar                native or classic (also sidecar.istio.io/nativeSidecar)
//	lastcall.dev/capture                sidecar: it sets the rules (lastcall capture -- /lastcall agent …) with NET_ADMIN
//	                                    and SETPCAP, and keeps no right; init: an init container with NET_ADMIN sets
//	                                    them (lastcall capture)
//	lastcall.dev/pre-stop               the use of an app's own preStop, which by default joins lastcall's, see below.
//	                                    keep: it stays, alone; replace: lastcall's replaces it; none: no app gets one
//	lastcall.dev/minimum-drain          MINIMUM_DRAIN_DURATION; the injection sets it to a longer sleep that it replaces
//	lastcall.dev/app                    finishes, exits or auto (default): the app's treatment at SIGTERM of connections
//	                                    whose requests only it sees, such as its own TLS; see docs/tls.md
//	lastcall.dev/linkerd-shutdown       "true": the hook ends linkerd's proxy after the quiet time; see docs/linkerd.md
//	lastcall.dev/ports                  for sockets: the ports to watch, PORT[/PROTOCOL], comma-separated; default
//	                                    containerPorts, with the protocols in their names (grpc-api, http2)
//	lastcall.dev/until                  the signals of a worker, one a line (lastcall wait --until): its preStop waits
//	                                    until all are idle. The worker is the first app container, or that of
//	                                    kubectl.kubernetes.io/default-container. Without a mesh the form is sockets
//	lastcall.dev/streams                how long the longest response takes, such as 10m: the grace period is made as
//	                                    long as one needs that begins when the draining phase ends, and the last call
//	                                    comes 5 s before its end, unless the pod sets that; see docs/streams.md
//	lastcall.dev/ignore-inbound-ports   ports whose connections never count
//	lastcall.dev/quiet-time, idle-grace, last-call-margin, compat, restart-wait
//	                                    LASTCALL_QUIET_TIME, _IDLE_GRACE, _LAST_CALL_MARGIN, _COMPAT, _RESTART_WAIT
//	lastcall.dev/cpu, memory, cpu-limit, memory-limit
//
// linkerd's shutdown-grace-period, kuma's sidecar-drain-time and consul's shutdown-grace-period-seconds shorten the
// time that the drain may take; linkerd's proxy-wait-before-exit-seconds is the minimum drain. lastcall.dev/notes lists
// how they were used.
//
// # The order in which the pod ends
//
// Kubernetes runs all preStop hooks at once when a pod is deleted, and ends each container when its own hook has
// returned; native sidecars come last, in reverse order (KEP-753). This determines which container gets a hook:
//
//   - An app without a preStop gets httpGet :15020/wait/TOKEN, which the kubelet sends: it needs no shell and no binary
//     in the app's image, and returns when no inbound request is in flight. So the app's SIGTERM comes when no client
//     waits for it. The token keeps the rest of the network from draining the pod; readers of the pod's manifest see
//     it.
//   - An app's own preStop joins it (JoinOf). One that only sleeps is replaced, and the drain lasts at least as
//     long. Any other may stop the app, so it runs after the drain: Kubernetes runs one handler, so the hook is the
//     program itself (lastcall wait --after), which waits, and then runs the app's command, or sends its request. That
//     of a worker (lastcall.dev/until) runs first (--before): it stops the worker's consumption. lastcall.dev/pre-stop:
//     keep leaves the app its own hook alone; its SIGTERM comes when that has ended, drained or not.
//   - A native sidecar has such an httpGet hook itself, with its own token. It begins the drain even if no app has our
//     hook, or the app has crashed. Its SIGTERM comes after the apps have ended.
//   - A classic sidecar has none: its SIGTERM at the start begins the drain. With a hook, its SIGTERM would come at the
//     end of the drain, and the agent would take it for the end of the app.
//   - Next to a classic sidecar an app's hook is the program itself (exec), which the sidecar copies at its start: it
//     leaves a process that ends with the container, which shows the sidecar how long the app needs its outbound
//     connections. With shareProcessNamespace the sidecar sees the processes anyway, and the hook is httpGet.
//
// The kubelet also calls an app's hook when it restarts that container alone, after a failed liveness probe for
// example. The sidecar's own hook, or its SIGTERM, does not follow then: this is how the agent (--sidecar native or
// classic) distinguishes a restart from the end of the pod. In a pod with several app containers each hook names the
// container's ports (?ports=8080), so that the others are not affected.
//
// A native sidecar is the first of the init containers, after a capture of its own: the app's own init containers use
// it, and it ends last. A classic one is the first of the containers, and its postStart hook delays the app until the
// sidecar serves, unless holdApplicationUntilProxyStarts is false; a capture of its own is the last of the init
// containers, which would otherwise have no network.
//
// A Job's pod ends when its app does: the kubelet ends a native sidecar, and a classic agent detects the end. Without a
// port it does not wait for clients (minimum drain and quiet time 0s).
package inject
