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

// settingLen is the length of one setting, bytes.
const settingLen = 6

// ValidSettingsLen reports whether the payload of a SETTINGS frame may have this length, bytes.
func ValidSettingsLen(length int) bool {
	return length%settingLen == 0 && length <= settingLen*maxSettings
}

// IsServerPreface reports whether a frame header is the first of a server, and of a client after its preface:
// SETTINGS (RFC 9113, 3.4).
func (h FrameHeader) IsServerPreface() bool {
	return h.Type == Settings && h.Flags == 0 && h.Stream == 0 && ValidSettingsLen(int(h.Length))
}

// MayBeServerPreface reports whether b is the beginning of such a frame, or more.
func MayBeServerPreface(b []byte) bool {
	if len(b) >= HeaderLen {
		return ReadHeader(b).IsServerPreface()
	}
	for i, is := range b {
		may := is == 0
		switch i {
		case 1:
			may = int(is)<<8 <= settingLen*maxSettings
		case 2:
			may = ValidSettingsLen(int(b[1])<<8 | int(is))
		case 3:
			may = is == Settings
		}
		if !may {
			return false
		}
	}
	return true
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
	if !at.IsServerPreface() {
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

// TableLimit is how large one side allows the dynamic table of the other side's encoder to be. A limit is in force
// when it has been acknowledged (RFC 9113, 6.5.3). Until then the larger one of the old and the new limit holds.
type TableLimit struct {
	latest, most uint32
	pending      int // SETTINGS not acknowledged
}

// NewTableLimit returns the limit before any SETTINGS.
func NewTableLimit() TableLimit { return TableLimit{latest: DefaultTableSize, most: DefaultTableSize} }

// Announce takes the payload of a SETTINGS frame.
func (l *TableLimit) Announce(payload []byte) {
	for id, value := range EachSetting(payload) {
		if id == SettingHeaderTableSize {
			l.latest = value
			l.most = max(l.most, l.latest)
		}
	}
	l.pending++
}

// Acknowledge takes the acknowledgement of the oldest SETTINGS that is pending.
func (l *TableLimit) Acknowledge() {
	if l.pending--; l.pending <= 0 {
		l.pending, l.most = 0, l.latest
	}
}

// Allowed returns how large the table may be, bytes.
func (l *TableLimit) Allowed() uint32 { return l.most }
