// Package model predicts rollouts: how long one takes, how many requests are lost and how much capacity it needs in
// addition, from how its pods end (package termination), how long requests take, and how late clients learn of a pod's end.
// It is a Monte Carlo simulation; the same seed gives the same result.
//
// What it assumes: requests arrive independently of each other (Poisson) and spread evenly over the endpoints; each client
// learns of a pod's end after a delay of its own, evenly distributed up to the propagation delay; a connection that a pod
// refuses at TCP is retried with another pod; pods start independently of each other, and exit in no more time than the
// termination's rules take. docs/model.md compares it with measurements.
package model
