// Package live shows what an agent is doing at this moment: a page for people, and the stream of states behind it.
//
//	state.go   the state, in the form in which it is sent
//	feed.go    the page, one state, and the stream (server-sent events)
//	page.html  the page: it loads nothing from elsewhere and needs no build step
//
// The promises:
//
//   - It only reads: no request changes the agent.
//   - Nothing runs and nothing is kept while no client looks.
//   - The number of streams is limited (sideport.Streams), and each write has a deadline.
//   - Streams end with the agent and delay its exit by no more than 10 ms, even if a client does not read.
package live
