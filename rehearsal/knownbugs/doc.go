// Package knownbugs has tests alone: popular servers (testdata/apps), each with a termination bug, or a default that
// loses requests, and its twin without it. A rehearsal must find the bug, and nothing in the twin.
package knownbugs
