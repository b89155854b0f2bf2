package pipe

import (
	"os"
	"regexp"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// Each ending is complete, and none lets a part of a response look like all of it.
func TestTableOfEndings(t *testing.T) {
	for on := noEvent + 1; on < events; on++ {
		for at := range places {
			e := endings[on][at]
			none := accesslog.Outcome{}
			switch isPart := at == within || at == untilClose || at >= withinStream; {
			case e.sends == usual:
				t.Errorf("event %d has no row, or none at place %d", on, at)
			case e.log == none || e.behind == none:
				t.Errorf("event %d at place %d is not logged", on, at)
			case e.sends == sendsReply && (e.reply == nil || isPart || at == inTunnel || at == inWebSocket):
				t.Errorf("event %d at place %d sends %v", on, at, e.reply)
			case at == untilClose && e.sends != sendsReset && on != onAnswered:
				t.Errorf("event %d completes a part of a response: %d", on, e.sends)
			case on == onLastCall && at != atRest && e.report == "":
				t.Errorf("the last call at place %d has no name", at)
			}
		}
	}
}

// The docs name what the last call does as the table does.
func TestEndingsInTheDocs(t *testing.T) {
	var pages []byte
	for _, name := range []string{"endings", "http2"} {
		page, err := os.ReadFile("../../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, page...)
	}
	for state, at := range map[string]place{
		"no response yet, also during an upload":     unanswered,
		"within a body of known length":              within,
		"within a body that ends with the connec":    untilClose,
		"a tunnel (CONNECT, an upgrade to anything ": inTunnel,
		"gRPC, no response yet":                      withinCall,
		"other, without a response":                  unanswered,
		"other, within a response":                   withinStream,
		"answered, but still sending":                answered,
	} {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(state) + `.*\| ` + "`([^`]*)`").FindSubmatch(pages)
		if want := endings[onLastCall][at].report; row == nil || string(row[1]) != want {
			t.Errorf("%q is %q; the table has %q", state, row, want)
		}
	}
}
