// Package certificate loads certificates and follows their files. A certificate in use is replaced only by a valid one:
// while the new files are invalid, the old certificate stays in use and an error is logged.
package certificate
