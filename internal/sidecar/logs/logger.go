package logs

import "log/slog"

// NewLogger is a program's own log, as JSON or text. It logs the number of dropped lines once the reader reads again.
func NewLogger(asJSON bool, to *Writer, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewTextHandler(to, options)
	if asJSON {
		handler = slog.NewJSONHandler(printable{to}, options)
	}
	log := slog.New(handler)
	var lines uint64
	to.OnLoss(func(lost uint64, err error) {
		if lines += lost; err == nil { // otherwise this line would be dropped too
			log.Warn("log lines dropped: the reader was too slow", "lines", lines)
			lines = 0
		}
	})
	return log
}
