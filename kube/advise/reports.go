package advise

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/losses"
)

// ReadReports reads JSON lines about terminations: those of observers, and lastcall's own reports (drain.Report), as its
// termination messages have them. workload, kind/name in lower case, and namespace choose the observers' lines; both may be
// empty, then all must be of one workload. Other lines are skipped.
func ReadReports(in io.Reader, namespace, workload string) (*Evidence, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxInput:
		return nil, fmt.Errorf("it is longer than %d MiB", maxInput>>20)
	}
	var s seen
	var names []string
	if _, err := losses.Read(bytes.NewReader(text), func(t losses.Termination) {
		name := t.Namespace + "/" + t.Workload
		if workload != "" && t.Workload != workload || namespace != "" && t.Namespace != namespace {
			return
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		s.add(time.Duration(t.Lateness*float64(time.Second)), t.Tail(), t.Verdict == losses.Clean)
	}); err != nil {
		return nil, err
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("it has terminations of %s: choose one by --workload or -f", strings.Join(names, ", "))
	}
	if err := readOwn(text, &s); err != nil {
		return nil, err
	}
	if len(names) == 1 {
		workload = names[0]
	}
	if workload == "" {
		workload = "a pod with lastcall"
	}
	return s.evidence(workload)
}

// readOwn adds lastcall's own reports. They have no time of the last arrival: if there was one, the whole draining phase
// counts.
func readOwn(text []byte, s *seen) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 256<<10)
	for lines.Scan() {
		_, line, found := strings.Cut(lines.Text(), "{") // kubectl writes in front of it
		if !found {
			continue
		}
		var r drain.Report
		if json.Unmarshal([]byte("{"+line), &r) != nil || len(r.Phases) == 0 {
			continue
		}
		var lateness, busy time.Duration
		for _, p := range r.Phases {
			switch p.Phase {
			case drain.Draining:
				busy += time.Duration(p.Took)
				if r.Late > 0 {
					lateness = busy
				}
			case drain.Waiting, drain.Finishing, drain.LastCall:
				busy += time.Duration(p.Took)
			}
		}
		s.add(lateness, busy-lateness, r.Verdict == drain.Clean)
	}
	return lines.Err()
}
