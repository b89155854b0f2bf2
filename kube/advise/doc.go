// Package advise finds the smallest timers with which a pod's end loses no more than a stated share of its requests: by
// package model's simulation of package termination's rules, for a preStop sleep and for lastcall.
package advise
