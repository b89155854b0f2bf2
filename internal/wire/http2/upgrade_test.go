package http2

import "testing"

func TestUpgradeSettings(t *testing.T) {
	for _, tt := range []struct {
		name, fields string
		isUpgrade    bool
		length       int // of the settings; -1: none
	}{
		{"one setting", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", true, 6},
		{"no settings", "upgrade: H2C\r\nHTTP2-Settings:\r\n", true, 0},
		{"a length that is no multiple of six", "Upgrade: h2c\r\nHTTP2-Settings: AAMA\r\n", true, -1},
		{"not base64", "Upgrade: h2c\r\nHTTP2-Settings: !\r\n", true, -1},
		{"another protocol", "Upgrade: websocket\r\nHTTP2-Settings: AAMAAABk\r\n", false, -1},
		{"a choice of protocols", "Upgrade: h2c, websocket\r\nHTTP2-Settings: AAMAAABk\r\n", false, -1},
		{"no upgrade", "Host: a\r\n", false, -1},
	} {
		head := []byte("GET / HTTP/1.1\r\n" + tt.fields + "\r\n")
		settings := UpgradeSettings(head)
		if IsUpgrade(head) != tt.isUpgrade || (settings == nil) != (tt.length < 0) || tt.length >= 0 && len(settings) != tt.length {
			t.Errorf("%s: %v, %x", tt.name, IsUpgrade(head), settings)
		}
	}
}
