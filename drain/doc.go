// Package drain is the state machine of a termination. It knows no Envoy, no
// Kubernetes and no sockets: only a DataPlane that it asks to say goodbye,
// watches, and ends.
//
// The promise, in ExitOnZero mode:
//
//   - A termination ends before the grace period does. There is no path on
//     which a data plane that hangs, lies, dies or never answers holds it longer.
//     (When a preStop hook has used up the time, before the two seconds are over
//     that the kubelet leaves after SIGTERM.)
//   - Nothing busy is ended before the last call, and what cannot be known
//     counts as busy.
//   - Nothing is waited for without need: the end of the last conversation is an
//     event, not the result of the next look.
//
// Phases:
//
//	serving → draining → waiting → (last call) → done
//	                        ↓           ↓ begun by a hook
//	                        └─ drained ─┘
//	                              ├──→ done        SIGTERM follows
//	                              └──→ serving     it does not: taken back
//
// Run is one linear function over channels and the standard clock. Its tests
// run in virtual time (testing/synctest), against the fake of package draintest.
package drain
