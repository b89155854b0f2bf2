package http2

import (
	"encoding/base64"

	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// IsUpgrade reports whether a head has an upgrade to HTTP/2 and nothing else (RFC 7540, 3.2; removed in RFC 9113).
func IsUpgrade(head []byte) bool { return http1.EqualFold([]byte(http1.Field(head, "upgrade")), "h2c") }

// UpgradeSettings returns the SETTINGS payload in a request with an upgrade to HTTP/2, nil if there is none or it is
// invalid: the app must not accept such an upgrade.
func UpgradeSettings(head []byte) []byte {
	if !IsUpgrade(head) {
		return nil
	}
	settings, err := base64.RawURLEncoding.DecodeString(http1.Field(head, "http2-settings"))
	if err != nil || !ValidSettingsLen(len(settings)) {
		return nil
	}
	return settings
}
