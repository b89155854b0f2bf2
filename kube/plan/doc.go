// Package plan shows how the pods of a manifest will end, as a timeline: for a terminal, as SVG and as JSON; and
// computes the smallest timers with which they lose no request. The rules are package termination's.
package plan
