// Package meshconfig finds out what lastcall is to go by, from the places and
// in the order that Istio's pilot-agent uses, and says of every value where it
// came from.
//
// It promises: the same text gives the same setting as in Istio; what Istio
// would pass over in silence is honoured if the meaning is plain, and always
// warned of; everything that is wrong is told at once, with the field, the
// value, the place and what is accepted. It reads nothing but its Input.
//
// # Order
//
// Each place wins over those before it:
//
//  1. built-in defaults
//  2. the mesh config file (./etc/istio/config/mesh), a MeshConfig: its defaultConfig
//  3. the environment variable PROXY_CONFIG, a ProxyConfig as YAML or JSON
//  4. the pod annotation proxy.istio.io/config, a ProxyConfig as YAML, from the
//     downward API's file (./etc/istio/pod/annotations)
//  5. flags of the command line, where there is one
//
// A field said in a higher place replaces the lower one whole, lists and maps
// included; only proxyMetadata is merged key by key. null says nothing. What
// proxyMetadata holds is environment; the container's own environment wins
// over it. (Istio copies proxyMetadata into the container's environment when
// the pod is created, and reads only that; here an annotation that comes by
// another way counts too.) An empty variable counts as not set.
//
// # Fields of ProxyConfig
//
//	terminationDrainDuration         5s     how long to wait, then kill, when EXIT_ON_ZERO_ACTIVE_CONNECTIONS is false.
//	                                        A Go duration, 0s or more. Not used otherwise, which is warned of.
//	drainDuration                    45s    Envoy's --drain-time-s: with Istio's behaviour, how long new connections
//	                                        are accepted. Whole seconds, at least 1s; a fraction is an error, as in Istio.
//	parentShutdownDuration           60s    no longer part of Istio; accepted, warned of, without effect.
//	statusPort                       15020  port of the status server, 1 to 65535. The flag --status-port wins.
//	proxyAdminPort                   15000  port of the admin API, 1 to 65535.
//	concurrency                      null   worker threads, 0 (one for each core) or more.
//	holdApplicationUntilProxyStarts  null   true, false or null.
//	proxyStatsMatcher                empty  inclusionPrefixes, inclusionSuffixes, inclusionRegexps (RE2): lists of
//	                                        strings. The annotations sidecar.istio.io/statsInclusionPrefixes, …Suffixes
//	                                        and …Regexps (separated by commas) each replace their list.
//	proxyMetadata                    empty  map of variables to strings, see below.
//
// Other fields of ProxyConfig are merged into Settings.Proxy; a value that
// cannot be read there is a warning, not an error, for lastcall does not need it.
//
// # Variables, by the container's environment or by proxyMetadata
//
//	EXIT_ON_ZERO_ACTIVE_CONNECTIONS   true   leave when nothing is open any more. As Go's strconv.ParseBool. Istio's
//	                                         default, taken with LASTCALL_COMPAT=istio, is false.
//	MINIMUM_DRAIN_DURATION            5s     how long to go on accepting at least, when leaving on zero. Go duration, 0s or more.
//	TERMINATION_GRACE_PERIOD_SECONDS  30     the pod's terminationGracePeriodSeconds. Whole seconds, 1 or more. ztunnel's name for it.
//	LASTCALL_QUIET_TIME               2s     how long nobody may have come before the drain ends. Go duration, 0s or more.
//	LASTCALL_LAST_CALL_MARGIN         2s     how long before SIGKILL the last call is made. Go duration, 0s or more.
//	LASTCALL_IDLE_GRACE               2s     how long a connection may be idle before it is closed. Go duration, 0s or more.
//	LASTCALL_RESTART_WAIT             10s    how long a connection waits for an app container that is restarted. Go duration, 0s or more.
//	LASTCALL_LAST_CALL_SPREAD         0s     over how much of the last call endings are spread. Go duration; 0s: half of what there is.
//	LASTCALL_WEBSOCKET                wait   what becomes of WebSockets in a drain: wait for the last call, or close before.
//	LASTCALL_WEBSOCKET_CLOSE          1001   the status of our close frames: 1001 or 1012.
//	LASTCALL_EVENT_STREAMS            wait   the same as LASTCALL_WEBSOCKET for event streams that answer a GET.
//	LASTCALL_ENDLESS_TYPES            empty  media types of lines without an end: they end as event streams do, if they answer a GET.
//	LASTCALL_COMPAT                   ""     "istio": Istio's own behaviour and defaults. The flag --compat wins.
//
// Environment only:
//
//	PROXY_CONFIG                             see Order.
//	TERMINATION_DRAIN_DURATION_SECONDS       no longer read by Istio, nor here: warned of.
//
// # What is put right, with a warning
//
//   - a ProxyConfig field inside proxyMetadata (a popular guide nests
//     proxyStatsMatcher there), a variable beside proxyMetadata, a ProxyConfig
//     field at the top of the MeshConfig;
//   - proxyMetadata values that are booleans or numbers instead of strings, and
//     there a proxyStatsMatcher that is written as a string;
//   - a MeshConfig still wrapped in an IstioOperator, Helm values or the
//     ConfigMap it came from; defaultConfig in PROXY_CONFIG or the annotation.
//
// What is in its place wins over what is not, in the same layer. Unknown
// fields, misspelt variables and annotations are warned of, with the name that
// was probably meant, and have no effect. So are a second YAML document in one
// text, and a file that is not there though it is not Istio's usual one.
package meshconfig
