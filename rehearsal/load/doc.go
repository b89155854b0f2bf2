// Package load sends one's own requests to a service at a constant rate, and judges each response by that of the
// undisturbed service.
//
// The load is open: each request is sent at its time, whether earlier ones were answered or not. A request counts as
// lost if its client did not get the response that it got from the undisturbed service: the connection was refused,
// reset or closed, the status or the body differs.
package load
