package timers

import "strings"

// Nearest returns the name closest to a misspelt one, if it was surely meant: equal except for case, or at most one
// edit per four letters and three in all away.
func Nearest(name string, among []string) (string, bool) {
	if len(name) < 3 || len(name) > 100 {
		return "", false
	}
	best, limit := "", min(3, len(name)/4)
	folded := strings.ToLower(name)
	for _, candidate := range among {
		if max(len(name)-len(candidate), len(candidate)-len(name)) > limit {
			continue
		}
		d := distance(folded, strings.ToLower(candidate))
		if d == 0 {
			return candidate, true
		}
		if d <= limit {
			best, limit = candidate, d-1
		}
	}
	return best, best != ""
}

// distance is the number of bytes to insert, delete, replace or swap with their neighbour to get from a to b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
