// Package drain is the state machine of a termination. It imports no Envoy, no Kubernetes and no sockets:
// it drains, watches and ends a DataPlane.
//
//	report, err := drain.Termination{Plane: plane, Config: drain.DefaultConfig(), Requests: &requests}.Run(ctx)
//
// In ExitOnZero mode it promises:
//
//   - A termination ends before the grace period does, whatever the data plane does: hang, crash, return
//     wrong answers or none. (If a preStop hook has used up the grace period, it ends within the two
//     seconds that the kubelet leaves after SIGTERM.)
//   - No busy connection is ended before the last call. A connection whose activity is unknown is busy.
//   - No time is wasted: the end of the last request is an event, not something found by polling.
//
// Phases:
//
//	serving → draining → waiting → (last call) → done
//	                        ↓           ↓ begun by a hook
//	                        └─ drained ─┘
//	                              ├──→ done        SIGTERM follows
//	                              └──→ serving     no SIGTERM: the drain is cancelled
//
// Files: requests.go has what is requested, run.go the beginning of a termination and its moments, exitonzero.go its
// sequence, await.go its only wait, its calls of the data plane, and the activity. hook.go has what a preStop hook
// adds, finish.go the connections that only the app can end, istio.go Istio's modes, report.go the result.
//
// Run is one linear function over channels and the standard clock. Its tests run in virtual time
// (testing/synctest) against the scripted data plane of package draintest.
package drain
