package httpdrain

import (
	"crypto/tls"
	"net"
	"reflect"
)

// underTLS returns the listener below one of tls.NewListener, and its configuration: a Plane follows its connections
// below TLS. For any other listener the configuration is nil. The fields are not documented: TestTLSListener fails if
// they change.
func underTLS(ln net.Listener) (net.Listener, *tls.Config) {
	if reflect.TypeOf(ln) != reflect.TypeOf(tls.NewListener(nil, nil)) {
		return ln, nil
	}
	inner, hasInner := undocumented[net.Listener](ln, "Listener")
	config, hasConfig := undocumented[*tls.Config](ln, "config")
	if !hasInner || !hasConfig {
		return ln, nil
	}
	return inner, config
}
