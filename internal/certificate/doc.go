// Package certificate reads certificates and follows their files. What is in
// force is replaced only by something better: whatever is wrong with new files, the
// old ones go on serving, and somebody is told.
package certificate
