package lastcall

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }
