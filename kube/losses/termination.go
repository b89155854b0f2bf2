package losses

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

// Termination is one line of an observer: the end of a pod, and what the kernel has shown of it.
type Termination struct {
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Workload  string   `json:"workload"` // kind/name in lower case
	Proxy     string   `json:"proxy"`    // what carries the pod's traffic: see carrier.Of
	Verdict   string   `json:"verdict"`  // clean, lost, killed or unknown
	Unknown   []string `json:"unknown,omitempty"`

	Began    time.Time           `json:"began"`                      // when the observer learned of it
	Deadline time.Time           `json:"deadline,omitzero"`          // of SIGKILL; zero: unknown
	Seconds  float64             `json:"seconds"`                    // from the beginning to the exit of the last process of an app
	Killed   []string            `json:"killed,omitempty"`           // containers that SIGKILL ended
	Lateness float64             `json:"lateness_seconds,omitempty"` // from the beginning to the last new connection of a client
	Probes   int                 `json:"probes,omitempty"`           // refused or reset connections that may be the kubelet's probes; they are not in Traffic.Lost
	Traffic  observe.Termination `json:"traffic,omitzero"`           // what the kernel showed
}

// The verdicts.
const (
	Clean   = "clean"   // no request was lost
	Lost    = "lost"    // at least one was
	Killed  = "killed"  // SIGKILL ended a container, and no request was lost
	Unknown = "unknown" // no loss was seen, but not everything was seen
)

// Verdicts are all of them.
var Verdicts = []string{Clean, Lost, Killed, Unknown}

// KilledCode is the exit code of a container that SIGKILL ended: 128 + 9.
const KilledCode = 137

// endBySIGKILL counts the requests in flight at the SIGKILL that ended a container: they are lost.
func (t *Termination) endBySIGKILL() {
	if len(t.Killed) == 0 {
		return
	}
	t.Traffic.Lost.Reset += t.Traffic.Unfinished
	t.Traffic.Unfinished = 0
	t.Traffic.Exit.Known, t.Traffic.Exit.Killed = true, true
}

// Tail is the time from the last new connection, or the beginning without one, until no request was in flight: a lower bound
// of the longest request.
func (t *Termination) Tail() time.Duration {
	return max(0, time.Duration((t.Seconds-t.Lateness)*float64(time.Second))-time.Duration(t.Traffic.Idle))
}

// Judge sets Verdict from the rest.
func (t *Termination) Judge() {
	t.endBySIGKILL()
	t.Traffic.Judge()
	switch {
	case t.Traffic.Verdict == observe.Lossy:
		t.Verdict = Lost
	case len(t.Unknown) > 0 || t.Traffic.Verdict == observe.Unknown:
		t.Verdict = Unknown
	case len(t.Killed) > 0:
		t.Verdict = Killed
	default:
		t.Verdict = Clean
	}
}

// Doubts is why a termination was not observed completely, and what else is remarkable.
func (t *Termination) Doubts() string {
	var all []string
	if len(t.Killed) > 0 {
		all = append(all, "SIGKILL ended "+strings.Join(t.Killed, ", "))
	}
	all = append(all, t.Unknown...)
	for _, one := range []struct {
		n    int
		what string
	}{{t.Traffic.Unseen, "connections were not seen to the end"}, {t.Traffic.Crossed, "clients sent after the app's close"}, {t.Traffic.Unfinished, "requests were in flight at the end of the observation"}} {
		if one.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", one.n, one.what))
		}
	}
	return strings.Join(all, "; ")
}

// isPlausible reports whether the numbers can be those of a termination: sums, rates and advice follow from them.
func (t *Termination) isPlausible() bool {
	const years, many = 1e8, 1e9 // seconds, requests
	l := t.Traffic.Lost
	for _, n := range []int{l.Reset, l.Unanswered, l.Refused, l.Cut} {
		if n < 0 || n > many {
			return false
		}
	}
	return t.Seconds >= 0 && t.Seconds <= years && t.Lateness >= 0 && t.Lateness <= years && t.Traffic.Idle >= 0
}

// maxLine bounds one line of an observer, bytes.
const maxLine = 256 << 10

// Read calls add for every termination in the lines of an observer's log. Lines that are no terminations are skipped;
// skipped counts those of them that begin like one.
func Read(r io.Reader, add func(Termination)) (skipped int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		text := lines.Text()
		i := strings.IndexByte(text, '{') // kubectl logs --prefix and --timestamps write in front of it
		if i < 0 {
			continue
		}
		var t Termination
		if err := json.Unmarshal([]byte(text[i:]), &t); err != nil || !t.isPlausible() {
			skipped++
			continue
		}
		if t.Workload != "" && t.Verdict != "" {
			add(t)
		}
	}
	if err := lines.Err(); err != nil {
		return skipped, fmt.Errorf("read the observer's lines: %w", err)
	}
	return skipped, nil
}
