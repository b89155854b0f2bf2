package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
)

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

// OpenFile opens a log for appending, without blocking. A FIFO without a reader is opened for reading as well, so that
// its lines wait for a reader, which may open and close it at any time (fifo(7)).
func OpenFile(name string) (*os.File, error) {
	way := os.O_WRONLY
	if info, err := os.Stat(name); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		way = os.O_RDWR
	}
	file, err := os.OpenFile(name, way|os.O_CREATE|os.O_APPEND|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0o644)
	switch {
	case err == nil:
		return file, nil
	case way == os.O_RDWR && errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w (a FIFO must be readable as well, so that lines can wait for its reader)", err)
	case errors.Is(err, syscall.ENXIO):
		return nil, fmt.Errorf("%w (it is a socket, a missing device, or a FIFO without a reader)", err)
	}
	return nil, err
}
