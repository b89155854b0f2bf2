// Package outcome is the result of rehearsing a service: the losses, why and when. It is written as a table and as
// JSON of a published schema.
package outcome
