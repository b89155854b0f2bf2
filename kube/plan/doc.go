// Package plan shows how the pods of a manifest will end, as a timeline: for a terminal, as SVG and as JSON. The rules are
// package termination's.
package plan
