package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

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
