// Package webhook is the admission server: POST /inject puts lastcall into pods as they are
// created, POST /lint warns of timers that cannot work.
//
// It promises: no request makes it panic; whatever is sent, it stays below 128 MiB (limits.go) and has time for other
// clients; a pod that cannot be read or injected is admitted as it is, with a warning; nothing is ever denied,
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
// It ends as a pod does under lastcall (httpdrain under drain.Termination), but for a delay: other replicas may not be ready
// when all are told to stop at once (Server.Delay). From then on every
// answer asks the API server to go elsewhere (Connection: close; GOAWAY), new connections are served,
// and it stays ready, for the minimum drain and until nobody has come for the quiet time. Then it
// leaves when nothing is under way; the last call comes 2 s before SIGKILL.
package webhook
