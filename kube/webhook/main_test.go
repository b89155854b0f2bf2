package webhook

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/kube/inject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testHandler(t testing.TB) *Handler {
	t.Helper()
	return NewHandler(&Handler{
		Inject: inject.Options{Image: "lastcall:test"},
		Log:    slog.New(slog.DiscardHandler),
	})
}
