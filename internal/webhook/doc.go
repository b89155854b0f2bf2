// Package webhook is the admission server: POST /inject puts lastcall into pods as they are
// created, POST /lint warns of timers that cannot work.
//
// It promises: no request makes it panic or hold more memory than its body's limit; a pod that
// cannot be read or injected is admitted as it is, with a warning; nothing is ever denied,
// unless Options.Deny asks /lint for it. Replicas need no leader: whatever they agree on is in
// one Secret, whose resourceVersion decides who was first.
//
// # Its certificate
//
// Either files that something else writes (cert-manager), read anew when they change; or its
// own: a certificate authority in a Secret, by which each replica signs its own short-lived
// certificate in memory. Before the authority is too old a next one is put beside it, and trusted
// (caBundle) long before the first certificate is signed by it; the old one is trusted as
// long as it is valid. So at no moment is there a replica whose certificate the API server
// does not trust. A new certificate is for new handshakes; no connection is dropped.
//
// # Its registration
//
// See configuration.go, where each choice stands with its reason.
//
// # Its end
//
// At SIGTERM it goes on serving for the minimum drain, ready all the while, and every answer
// asks the caller to close its connection (HTTP/2: GOAWAY): the API server learns from the
// endpoints that it is going, not from a refused connection. Then http.Server.Shutdown, at most
// until the last call.
package webhook
