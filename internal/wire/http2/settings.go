package http2

import (
	"encoding/binary"
	"iter"
)

// Settings that matter to a proxy (RFC 9113, 6.5.2).
const (
	SettingHeaderTableSize      = 0x1
	SettingMaxConcurrentStreams = 0x3

	settingInitialWindowSize     = 0x4
	settingEnableConnectProtocol = 0x8 // RFC 8441
)

const settingLen = 6

// ValidSettingsLen reports whether the payload of a SETTINGS frame may have this length, bytes.
func ValidSettingsLen(length int) bool {
	return length%settingLen == 0 && length <= settingLen*maxSettings
}

// MayBeServerPreface reports whether b begins with, or is the beginning of, the first frame of a server, and of a
// client after its preface: SETTINGS (RFC 9113, 3.4).
func MayBeServerPreface(b []byte) bool {
	first := [HeaderLen]byte{3: Settings}
	n := copy(first[:], b)
	h := ReadHeader(first[:])
	if n < 3 { // any length of these that have come
		return h.Length <= settingLen*maxSettings
	}
	return h.Type == Settings && h.Flags == 0 && h.Stream == 0 && ValidSettingsLen(int(h.Length))
}

// MayBeFirst reports whether b, which is not empty, may begin with a frame while no SETTINGS have come, which allow
// larger ones (RFC 9113, 4.2). Text, such as a response of HTTP/1, may not.
func MayBeFirst(b []byte) bool { return b[0] == 0 && (len(b) == 1 || b[1] <= WholeFrame>>8) }

// FirstSettings returns the payload of the SETTINGS that follow a client's preface, nil if another frame does. It
// returns false while b, which begins with the preface, is too short.
func FirstSettings(b []byte) (payload []byte, ok bool) {
	begin := len(Preface) + HeaderLen
	if len(b) < begin {
		return nil, false
	}
	at := ReadHeader(b[len(Preface):])
	if !MayBeServerPreface(b[len(Preface):]) {
		return nil, true
	}
	if len(b) < begin+int(at.Length) {
		return nil, false
	}
	return b[begin : begin+int(at.Length)], true
}

// EachSetting yields identifier and value of each setting in the payload of a SETTINGS frame.
func EachSetting(payload []byte) iter.Seq2[uint16, uint32] {
	return func(yield func(uint16, uint32) bool) {
		for ; len(payload) >= settingLen; payload = payload[settingLen:] {
			if !yield(binary.BigEndian.Uint16(payload), binary.BigEndian.Uint32(payload[2:])) {
				return
			}
		}
	}
}

// announced is a setting. A value is in force when it has been acknowledged (RFC 9113, 6.5.3). Until then the larger or
// the smaller one of the old and the new value holds.
type announced struct {
	latest, most, least uint32
	pending             int32 // SETTINGS not acknowledged
}

func announcedBefore(value uint32) announced {
	return announced{latest: value, most: value, least: value}
}

func (a *announced) announce(id uint16, payload []byte) {
	for is, value := range EachSetting(payload) {
		if is == id {
			a.latest, a.most, a.least = value, max(a.most, value), min(a.least, value)
		}
	}
	a.pending++
}

// Acknowledge takes the acknowledgement of the oldest SETTINGS that is pending.
func (a *announced) Acknowledge() {
	if a.pending--; a.pending <= 0 {
		*a = announcedBefore(a.latest)
	}
}

// TableLimit is how large one side allows the dynamic table of the other side's encoder to be.
type TableLimit struct{ announced }

// NewTableLimit returns the limit before any SETTINGS.
func NewTableLimit() TableLimit { return TableLimit{announcedBefore(DefaultTableSize)} }

// Announce takes the payload of a SETTINGS frame.
func (l *TableLimit) Announce(payload []byte) { l.announce(SettingHeaderTableSize, payload) }

// Allowed returns how large the table may be, bytes.
func (l *TableLimit) Allowed() uint32 { return l.most }

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
