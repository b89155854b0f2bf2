// Package outcome is the result of rehearsing a service: what was lost, why and when. It is written as a table, as JSON of a
// published schema, as JUnit's XML, as GitHub's annotations and as one HTML page.
package outcome
