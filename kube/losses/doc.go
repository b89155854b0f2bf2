// Package losses adds up what terminations of pods have lost, by workload, and what would help each of them.
//
// The numbers come from the observers' JSON lines or from Prometheus. The advice is as good as they are: it names the
// number that it follows from, and nothing follows from terminations that were not observed.
package losses
