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
// # Variables
//
// Table lists every variable and the flags that override fields and variables, with their defaults.
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
