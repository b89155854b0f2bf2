package logs

import (
	"fmt"
	"log/slog"
)

// NewLogger is a program's own log, in the format text or json. It logs the number of dropped lines once the reader
// reads again.
func NewLogger(format string, to *Writer, level slog.Leveler) (*slog.Logger, error) {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler
	switch format {
	case "text":
		handler = slog.NewTextHandler(to, options)
	case "json":
		handler = slog.NewJSONHandler(to, options)
	default:
		return nil, fmt.Errorf("log format %q: must be text or json", format)
	}
	log := slog.New(handler)
	var lines uint64
	to.OnLoss(func(lost uint64, err error) {
		if lines += lost; err == nil { // otherwise this line would be dropped too
			log.Warn("log lines dropped: the reader was too slow", "lines", lines)
			lines = 0
		}
	})
	return log, nil
}
