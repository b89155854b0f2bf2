// Package bugreport collects what is needed to understand a problem with lastcall in a cluster, as a zip file: versions,
// the result of check, the webhook's configuration, logs, injected pods with their sidecars' state, and Events.
//
// It promises:
//
//   - Bounded: every look-up has a deadline, every file and the number of pods a limit.
//   - No Secrets are read. Values of environment variables and arguments that look secret are replaced, and all
//     annotations named kubectl.kubernetes.io/last-applied-configuration, which repeat them.
//   - A part that cannot be collected does not stop the rest; errors.txt in the file lists it.
package bugreport
