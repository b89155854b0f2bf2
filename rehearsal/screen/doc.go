// Package screen is how a rehearsal shows itself: colours where there is a
// terminal, a line that shows the clock, columns that stand.
package screen
