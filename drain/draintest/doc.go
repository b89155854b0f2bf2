// Package draintest has a scripted data plane without a network, to test code that drives one:
// drain.Termination, an agent, a status server.
//
// A Plane behaves like lastcall's proxy. The script lists its clients: when each connects, what it
// requests, how long the response takes, how long it keeps its connection afterwards. The data plane can
// also misbehave: calls that hang, are late or fail, unknown activity, a crash.
//
//	synctest.Test(t, func(t *testing.T) {
//		plane := draintest.New(draintest.Script{
//			Clients: []draintest.Client{
//				draintest.Get("/delay/10", -time.Second, 10*time.Second), // in flight
//				draintest.Idle(-time.Minute),                             // a kept-alive connection
//			},
//			Faults: []draintest.Fault{{Method: draintest.StopAccepting, Hang: true}},
//		})
//		defer plane.Stop()
//		report, err := drain.Termination{Plane: plane, Config: cfg}.Run(ctx)
//		…
//	})
//
// A Plane promises:
//
//   - Its state depends only on the script, the calls and the clock. Events of one instant happen in the
//     order of the script, before any call of that instant returns.
//   - Everything is recorded: Endings lists how every request ended, Calls when every call was made and
//     how long it took.
//   - It does no more than the contract of drain.DataPlane demands: changes are pushed only after a
//     successful Drain, and merged.
//
// All times are offsets from New. In a testing/synctest bubble they are virtual; a Plane works outside of one, too.
package draintest
