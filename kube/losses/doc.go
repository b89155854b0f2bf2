// Package losses adds up what the terminations of a workload's pods have lost, and states what would help.
//
// The advice is as good as the numbers are: it names the number that it follows from, and nothing follows from
// terminations that were not observed.
package losses
