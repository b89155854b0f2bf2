package http2

import (
	"errors"
	"strconv"
)

// ErrCode is an error code of RST_STREAM and GOAWAY.
type ErrCode uint32

// Error codes (RFC 9113, 7).
const (
	NoError          ErrCode = 0x0
	ProtocolError    ErrCode = 0x1
	InternalError    ErrCode = 0x2
	FlowControlError ErrCode = 0x3
	StreamClosed     ErrCode = 0x5
	FrameSizeError   ErrCode = 0x6
	CompressionError ErrCode = 0x9
	EnhanceYourCalm  ErrCode = 0xb
)

func (c ErrCode) String() string { return strconv.Itoa(int(c)) }

// Violations of the protocol.
var (
	ErrSize       = errors.New("a frame of a size that its type does not allow")
	ErrPadding    = errors.New("padding beyond the end of its frame")
	ErrFrameOrder = errors.New("a frame that is not allowed at this place")
	ErrStreamID   = errors.New("a stream identifier that its frame does not allow")
)

// CodeOf returns the error code for a connection that err ends. Errors of the Decoder have CompressionError.
func CodeOf(err error) ErrCode {
	var flood Flood
	switch {
	case errors.As(err, &flood):
		return EnhanceYourCalm
	case errors.Is(err, ErrSize):
		return FrameSizeError
	case errors.Is(err, ErrFrameOrder), errors.Is(err, ErrStreamID), errors.Is(err, ErrPadding):
		return ProtocolError
	}
	return CompressionError
}
