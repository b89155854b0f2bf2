// Package webhook is the admission server: POST /inject puts lastcall into pods as they are
// created, POST /lint warns of timers that contradict each other.
//
// It promises: no request makes it panic; its memory stays below 128 MiB for any input (limits), and other clients
// are served; a pod that cannot be read or injected is admitted unchanged, with a warning; it denies nothing, unless
// Options.Deny enables that for /lint. Replicas need no leader: their shared state is one Secret, whose resourceVersion
// decides which one was first.
//
// # Its certificate
//
// Either files from another program (cert-manager), which are reloaded when they change; or its own: a certificate
// authority in a Secret, with which each replica signs a short-lived certificate in memory. Before the authority is too
// old, a next one is added, and trusted (caBundle) long before it signs the first certificate; the old one is trusted
// as long as it is valid. So the API server trusts the certificate of every replica at any time. New handshakes use a
// new certificate; no connection is dropped.
//
// # Its registration
//
// See deploy/chart/templates/webhook/configurations.yaml, which has the reason for each choice.
//
// # Its end
//
// It ends as a pod does under lastcall (httpdrain under drain.Termination), after a delay: other replicas may not be
// ready when all get SIGTERM at once (Server.Delay). Then every response ends its connection (Connection: close;
// GOAWAY), new connections are served, and it stays ready, for the minimum drain and until no connection has arrived
// for the quiet time. Then it exits when no review is in flight; the last call comes 2 s before SIGKILL.
package webhook
