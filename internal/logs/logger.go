package logs

import (
	"fmt"
	"log/slog"
)

// NewLogger is a program's own log, in the format text or json. What was dropped
// is logged when the reader is back.
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
		if lines += lost; err == nil { // else this line would be the next to be lost
			log.Warn("the log was not read as fast as it was written; lines were dropped", "lines", lines)
			lines = 0
		}
	})
	return log, nil
}
