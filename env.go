package lastcall

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

const variableHookToken = "LASTCALL_HOOK_TOKEN" // the agent's, too

// fromEnvironment reads the variables that are set, over the defaults.
func fromEnvironment(getenv func(string) string) (settings, error) {
	s := settings{config: drain.DefaultConfig(), hookToken: getenv(variableHookToken)}
	var errs []error
	for _, v := range []struct {
		name   string
		to     *time.Duration
		parse  func(string) (time.Duration, bool)
		format string
	}{
		{timers.GracePeriod, &s.config.GracePeriod, timers.ParseGracePeriod, timers.GracePeriodFormat},
		{timers.MinimumDrain, &s.config.MinimumDrain, timers.ParseDuration, timers.DurationFormat},
		{timers.QuietTime, &s.config.QuietTime, timers.ParseDuration, timers.DurationFormat},
		{timers.IdleGrace, &s.config.IdleGrace, timers.ParseDuration, timers.DurationFormat},
		{timers.Margin, &s.config.Margin, timers.ParseDuration, timers.DurationFormat},
	} {
		text := getenv(v.name)
		if text == "" {
			continue
		}
		d, ok := v.parse(text)
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %q: must be %s", v.name, text, v.format))
			continue
		}
		*v.to = d
	}
	if text := getenv(timers.DrainedByHook); text != "" {
		drained, err := strconv.ParseBool(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q: must be true or false", timers.DrainedByHook, text))
		}
		s.drainedByHook = drained
	}
	return s, errors.Join(errs...)
}

// misspelt warns of variables that have no effect because of their names.
func misspelt(log *slog.Logger, environ []string) {
	read := []string{timers.GracePeriod, timers.MinimumDrain, timers.QuietTime, timers.IdleGrace, timers.Margin,
		timers.DrainedByHook, variableHookToken}
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if meant, ok := timers.Nearest(name, read); ok && !slices.Contains(read, name) {
			log.Warn("unknown setting, has no effect on lastcall: did you mean "+meant+"?", "variable", name)
		}
	}
}
