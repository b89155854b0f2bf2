package strategy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// envoyAccessLog is the format of Istio's access log; the rows' log lines are judged by it.
const envoyAccessLog = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% "%UPSTREAM_HOST%"
`

// podsCluster is the name of the pods' cluster in the configuration.
const podsCluster = "pods"

// j is a message of Envoy's configuration, field by field.
type j map[string]any

const (
	typeExtension = "type.googleapis.com/envoy.extensions."
	typeEndpoints = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
)

// startEnvoyGateway starts a real Envoy as the gateway. It reads its endpoints from a file, which is replaced as a control
// plane would push them.
func (env *Env) startEnvoyGateway(ctx context.Context, dir string, endpoints []string) (*Gateway, error) {
	listen, err1 := env.Ports.Next()
	admin, err2 := env.Ports.Next()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	folder := filepath.Join(dir, "endpoints") // of its own, because Envoy watches folders
	file := filepath.Join(folder, "endpoints.json")
	g := &Gateway{Address: node.Loopback(listen), access: filepath.Join(dir, accessLogFile)}
	g.set = func(endpoints []string) error {
		list, err := writeEDS(endpoints)
		if err != nil {
			return err
		}
		return replace(file, list)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	if err := g.SetEndpoints(endpoints); err != nil {
		return nil, err
	}
	config, err := gatewayConfig(listen, admin, g.access, file)
	if err != nil {
		return nil, err
	}
	process, err := env.runEnvoy(ctx, dir, "gateway", config, node.Loopback(admin), nil)
	if err != nil {
		return nil, err
	}
	g.stop = func() {
		_ = process.Terminate()
		late := time.AfterFunc(stopTimeout, func() { _ = process.Kill() })
		defer late.Stop()
		<-process.Done()
	}
	return g, nil
}

// gatewayConfig is Envoy's configuration. Like the built-in gateway it retries twice if no connection was established, and
// never a request that a pod may have received.
func gatewayConfig(listen, admin int, access, endpoints string) ([]byte, error) {
	at := func(port int) j {
		return j{"socket_address": j{"address": "127.0.0.1", "port_value": port}}
	}
	typed := func(name, message string, config j) j {
		config["@type"] = typeExtension + message
		return j{"name": name, "typed_config": config}
	}
	manager := typed("envoy.filters.network.http_connection_manager", "filters.network.http_connection_manager.v3.HttpConnectionManager", j{
		"stat_prefix": "front", "stream_idle_timeout": "0s",
		"access_log": []j{typed("envoy.access_loggers.file", "access_loggers.file.v3.FileAccessLog", j{
			"path": access, "log_format": j{"text_format_source": j{"inline_string": envoyAccessLog}},
		})},
		"http_filters": []j{typed("envoy.filters.http.router", "filters.http.router.v3.Router", j{})},
		"route_config": j{"name": "front", "virtual_hosts": []j{{
			"name": podsCluster, "domains": []string{"*"},
			"retry_policy": j{"retry_on": "connect-failure,refused-stream", "num_retries": 2},
			"routes":       []j{{"match": j{"prefix": "/"}, "route": j{"cluster": podsCluster, "timeout": "0s"}}},
		}}},
	})
	return json.MarshalIndent(j{
		"node":  j{"id": "gateway", "cluster": "rehearsal"},
		"admin": j{"address": at(admin)},
		"static_resources": j{
			"listeners": []j{{"name": "front", "address": at(listen), "filter_chains": []j{{"filters": []j{manager}}}}},
			"clusters": []j{{
				"name": podsCluster, "type": "EDS", "connect_timeout": "5s",
				"eds_cluster_config": j{"eds_config": j{
					"resource_api_version": "V3",
					"path_config_source":   j{"path": endpoints, "watched_directory": j{"path": filepath.Dir(endpoints)}},
				}},
			}},
		},
	}, "", "  ")
}

// writeEDS encodes endpoints for Envoy.
func writeEDS(endpoints []string) ([]byte, error) {
	pods := []j{}
	for _, e := range endpoints {
		host, text, err := net.SplitHostPort(e)
		if err != nil {
			return nil, fmt.Errorf("endpoint %q: %w", e, err)
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("port of endpoint %q: %w", e, err)
		}
		pods = append(pods, j{"endpoint": j{"address": j{"socket_address": j{"address": host, "port_value": port}}}})
	}
	return json.Marshal(j{
		"resources": []j{{"@type": typeEndpoints, "cluster_name": podsCluster, "endpoints": []j{{"lb_endpoints": pods}}}},
	})
}

// replace replaces a file atomically.
func replace(file string, data []byte) error {
	fresh := file + ".new"
	if err := os.WriteFile(fresh, data, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}
