package drain_test

import (
	"os"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/lastcall-dev/lastcall/drain"
)

// Each ending that a report can name is explained.
func TestEndingsAreDocumented(t *testing.T) {
	var text strings.Builder
	for _, page := range []string{"../docs/endings.md", "../docs/http2.md"} {
		content, err := os.ReadFile(page)
		must.Do(t, err)
		text.Write(content)
	}
	for _, ending := range []string{drain.EndingReply, drain.EndingGRPC, drain.EndingConnect, drain.EndingErrorEvent,
		drain.EndingGoingAway, drain.EndingFIN, drain.EndingTruncated, drain.EndingReset, drain.EndingAnswered,
		drain.EndingCompleted, drain.LeftToApp} {
		if !strings.Contains(text.String(), "`"+ending+"`") {
			t.Errorf("neither page has `%s`", ending)
		}
	}
}
