package transparency

import (
	"fmt"
	"slices"
	"strings"
)

// outcome has a word for each request of a row's client in one mode.
type outcome struct {
	words  []string
	served int  // how often the server got the request: 0 where it does not count
	isCut  bool // no whole response was sent: what looks like one is the worst that a client can get
}

func (o outcome) String() string {
	var out []string
	for i := 0; i < len(o.words); {
		n := 1
		for i+n < len(o.words) && o.words[i+n] == o.words[i] {
			n++
		}
		if out = append(out, o.words[i]); n > 1 {
			out[len(out)-1] += fmt.Sprint("*", n)
		}
		i += n
	}
	text := strings.Join(out, " ")
	if o.served > 0 {
		text += fmt.Sprintf(" (served %d)", o.served)
	}
	return text
}

// verdict of a mode against direct.
type verdict int

const (
	equal verdict = iota
	better
	worse
)

func (v verdict) String() string { return [...]string{"equal", "better", "worse"}[v] }

// rank orders words from what no user notices, a timeout, to an answer: an error without a byte of a response may be
// repeated, one behind a part of it or about it may not.
func rank(word string) int {
	switch {
	case word == "error:timeout":
		return 1
	case word == "error:eof", word == "error:reset", word == "error:connect":
		return 3
	case strings.HasPrefix(word, "error:"), strings.HasPrefix(word, "truncated:"), strings.HasPrefix(word, "closed:"):
		return 2
	}
	return 4
}

// isOurs reports whether a word may be an answer of the pipe's own.
func isOurs(word string) bool {
	return slices.ContainsFunc([]string{"502:", "503:", "504:", "408:"}, func(p string) bool { return strings.HasPrefix(word, p) })
}

// compareWord is about one request.
func compareWord(plain, got string, isCut bool) verdict {
	switch {
	case plain == got:
		return equal
	case isCut && rank(plain) == 4 && (rank(got) < 4 || isOurs(got)):
		return better
	case strings.HasPrefix(plain, "truncated:") && rank(got) == 4 && !isOurs(got):
		return worse // half a response that looks whole
	case rank(plain) == 4:
		return worse
	case isOurs(got):
		got = "error:protocol" // an error of the server, as the direct one is
	}
	switch a, b := rank(plain), rank(got); {
	case a == b:
		return equal
	case a < b:
		return better
	}
	return worse
}

// compare is about a row.
func compare(plain, got outcome) verdict {
	if len(plain.words) != len(got.words) {
		return worse
	}
	if len(plain.words) >= many {
		return compareMany(plain, got)
	}
	v := equal
	for i := range plain.words {
		switch compareWord(plain.words[i], got.words[i], plain.isCut) {
		case worse:
			if n := unanswered(plain); n > 0 && len(plain.words) > 1 && n == failures(plain) && n >= unanswered(got) && unanswered(got) == failures(got) {
				return equal // which request meets a close is chance
			}
			return worse
		case better:
			v = better
		}
	}
	if got.served > plain.served && v != better {
		return worse // the server did it twice
	}
	return v
}

// unanswered are requests that met a close: the client has no byte of a response.
func unanswered(o outcome) (n int) {
	for _, word := range o.words {
		if rank(word) == 3 {
			n++
		}
	}
	return n
}

// A row of many requests counts failures, because which of them meets a close is chance.
const many = 50

func compareMany(plain, got outcome) verdict {
	a, b := failures(plain), failures(got)
	if a > 0 {
		a = 3*a + 5 // a client that does not repeat: how many meet one is chance, too
	}
	switch {
	case b > a:
		return worse
	case a > 0 && b == 0:
		return better
	}
	return equal
}

// failures are all but whole answers.
func failures(o outcome) (n int) {
	for _, word := range o.words {
		if rank(word) < 4 || isOurs(word) {
			n++
		}
	}
	return n
}
