// Package losses adds up the losses of the terminations of a workload's pods, and states remedies.
//
// The advice is as good as the numbers are: it names the number that it follows from, and nothing follows from
// terminations that were not observed.
package losses
