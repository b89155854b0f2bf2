package http2

// firstWindow is the size of a window before any SETTINGS, bytes (RFC 9113, 6.9.2).
const firstWindow = 1<<16 - 1

// Window is how much more data one side may send, apart from the window of the settings. The zero value is
// that of a new stream. No window exceeds 31 bits (RFC 9113, 6.9.1); only a peer's violation makes it wrong.
type Window int32

// Grows takes the increment of a WINDOW_UPDATE frame.
func (w *Window) Grows(increment uint32) { *w += Window(increment) }

// Sends takes the length of a DATA frame, with its padding.
func (w *Window) Sends(length uint32) { *w -= Window(length) }

// Windows are the flow-control windows of one direction of a connection, as its receiver counts them (RFC 9113, 6.9).
type Windows struct {
	Conn Window // beyond firstWindow, which no setting changes

	announced // a stream's first window, from SETTINGS_INITIAL_WINDOW_SIZE
}

// NewWindows returns the windows before any SETTINGS.
func NewWindows() Windows { return Windows{announced: announcedBefore(firstWindow)} }

// Announce takes the payload of a SETTINGS frame of the receiver.
func (w *Windows) Announce(payload []byte) { w.announce(settingInitialWindowSize, payload) }

// Allow reports whether a stream may send n more bytes.
func (w *Windows) Allow(stream Window, n int) bool {
	return int64(n) <= min(firstWindow+int64(w.Conn), int64(w.least)+int64(stream))
}
