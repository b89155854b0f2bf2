// Package report writes the findings of lint in the formats of people, CI systems and code hosts.
package report
