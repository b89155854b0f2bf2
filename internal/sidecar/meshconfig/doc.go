// Package meshconfig resolves lastcall's settings from the same places and in the same order as Istio's pilot-agent,
// and records the source of every value.
//
// The promise: the same text gives the same setting as in Istio. What Istio would ignore silently is used if its
// meaning is plain, always with a warning. All errors are reported at once, with the field, the value, the place and
// the valid values. The package reads nothing but its Input.
//
// # Order
//
// Each place overrides those before it:
//
//  1. built-in defaults
//  2. the mesh config file (./etc/istio/config/mesh), a MeshConfig: its defaultConfig
//  3. the environment variable PROXY_CONFIG, a ProxyConfig as YAML or JSON
//  4. the pod annotation proxy.istio.io/config, a ProxyConfig as YAML, from the downward API's file
//     (./etc/istio/pod/annotations)
//  5. flags of the command line, where there is one
//
// A field of a higher place replaces that of a lower one as a whole, lists and maps included; only proxyMetadata is
// merged key by key. null sets nothing. The entries of proxyMetadata are environment variables; the container's own
// environment overrides them. (Istio copies proxyMetadata into the container's environment when the pod is created, and
// reads only that; here an annotation from another source counts too.) An empty variable counts as not set.
//
// # Fields of ProxyConfig and variables
//
// Table lists the fields and variables that lastcall uses, their flags and defaults. Other fields are in Settings.Proxy
// as they are written.
//
// # What is corrected, with a warning
//
//   - a ProxyConfig field inside proxyMetadata (a popular guide nests proxyStatsMatcher there), a variable next to
//     proxyMetadata, a ProxyConfig field at the top of the MeshConfig;
//   - proxyMetadata values that are booleans or numbers instead of strings, and a proxyStatsMatcher there that is
//     written as a string;
//   - a MeshConfig still wrapped in an IstioOperator, Helm values or its ConfigMap; defaultConfig in PROXY_CONFIG or
//     the annotation.
//
// In the same layer, a correctly placed value overrides a misplaced one. Unknown fields of a ProxyConfig and misspelt
// fields, variables and annotations cause a warning, with the name that was probably meant, and have no effect. So do a
// second YAML document in one text, and a missing file that is not Istio's usual one.
package meshconfig
