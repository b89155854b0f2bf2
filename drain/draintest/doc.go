// Package draintest has a data plane without a network, for tests of whatever
// drives one: drain.Termination, an agent, a status server.
//
// A Plane behaves as lastcall's pipe does. Its clients are scripted: who
// connects when, what it asks, how long the answer takes, how long it keeps its
// connection afterwards. It can also misbehave by script: calls that hang, come
// late or fail, activity that is unknown, an early death.
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
// What a Plane promises, whatever its script says:
//
//   - Its state follows from the script, the calls and the clock alone. Events of
//     one instant come in the order of the script, before any call of that
//     instant is answered.
//   - Nothing is ended without being listed: Endings says of every request how
//     it went, Calls says of every call when it came and how long it took.
//   - It is as unhelpful as the interface of drain.DataPlane allows: changes are
//     pushed only after Drain, merged, and only when it has been reached.
//
// All moments are offsets from New. Time is the standard clock's: in a
// testing/synctest bubble it is virtual. Outside of one it works too.
package draintest
