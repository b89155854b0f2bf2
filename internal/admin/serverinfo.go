package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// stateName is Envoy's server.state. The two states before the data plane serves do not occur: the API is not available
// then. A failed health check is called draining, but a drain does not lead to it.
func stateName(isFailed bool) string {
	if isFailed {
		return "DRAINING"
	}
	return "LIVE"
}

// hotRestart is the version of an Envoy with --disable-hot-restart, as Istio's is.
const hotRestart = "disabled"

func (s *Server) hotRestartVersion(query) answer { return text(http.StatusOK, hotRestart) }

type serverInfo struct {
	Version      string          `json:"version"`
	State        string          `json:"state"`
	Uptime       string          `json:"uptime_current_epoch"`
	UptimeAll    string          `json:"uptime_all_epochs"`
	HotRestart   string          `json:"hot_restart_version"`
	Options      json.RawMessage `json:"command_line_options"`
	Node         node            `json:"node"`
	Initializing bool            `json:"hot_restart_initializing"`
}

// commandLine are Envoy's options with the values that fit this process: concurrency, log level and drain time. Options that do
// not apply have Envoy's defaults, because tools expect them. The access log is not buffered: file_flush_interval is 0s.
const commandLine = `{
	"base_id": "0", "concurrency": %d, "config_path": "", "config_yaml": "", "allow_unknown_static_fields": false,
	"admin_address_path": "", "local_address_ip_version": "v4",
	"log_level": %q, "component_log_level": "", "log_format": "", "log_path": "",
	"service_cluster": "", "service_node": "", "service_zone": "", "file_flush_interval": "0s",
	"drain_time": %q, "parent_shutdown_time": "900s", "mode": "Serve", "disable_hot_restart": true,
	"enable_mutex_tracing": false, "restart_epoch": 0, "cpuset_threads": false, "reject_unknown_dynamic_fields": false,
	"log_format_escaped": false, "disabled_extensions": [], "ignore_unknown_dynamic_fields": false,
	"use_dynamic_base_id": false, "base_id_path": "", "drain_strategy": "Immediate", "enable_fine_grain_logging": false,
	"socket_path": "@envoy_domain_socket", "socket_mode": 0, "enable_core_dump": false, "stats_tag": [],
	"skip_hot_restart_on_no_parent": false, "skip_hot_restart_parent_stats": false, "skip_deprecated_logs": false,
	"file_flush_min_size": 0, "log_stacktrace_single_entry": false
}`

type node struct {
	ID                 string       `json:"id"`
	Cluster            string       `json:"cluster"`
	UserAgentName      string       `json:"user_agent_name"`
	UserAgentBuild     buildVersion `json:"user_agent_build_version"`
	Extensions         []string     `json:"extensions"`
	ClientFeatures     []string     `json:"client_features"`
	ListeningAddresses []string     `json:"listening_addresses"`
	DynamicParameters  struct{}     `json:"dynamic_parameters"`
}

type buildVersion struct {
	Version  semver            `json:"version"`
	Metadata map[string]string `json:"metadata"`
}

type semver struct {
	Major int `json:"major_number"`
	Minor int `json:"minor_number"`
	Patch int `json:"patch"`
}

func (s *Server) serverInfo(query) answer {
	uptime := seconds(time.Since(s.began))
	failed, _ := s.draining.state()
	revision, status := source()
	return indented(serverInfo{
		Version:    strings.Join([]string{revision, s.Version, status, "RELEASE", "Go"}, "/"),
		State:      stateName(failed),
		Uptime:     uptime,
		UptimeAll:  uptime,
		HotRestart: hotRestart,
		Options:    json.RawMessage(fmt.Sprintf(commandLine, runtime.GOMAXPROCS(0), s.level(), seconds(s.DrainTime))),
		Node: node{
			UserAgentName: "lastcall",
			UserAgentBuild: buildVersion{
				Version:  parseSemver(s.Version),
				Metadata: map[string]string{"revision.status": status, "revision.sha": revision, "build.type": "RELEASE", "ssl.version": "Go"},
			},
			Extensions:         []string{},
			ClientFeatures:     []string{},
			ListeningAddresses: []string{},
		},
	})
}

// seconds is a duration in protobuf's JSON form: whole seconds if possible, as in Envoy.
func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int64(d.Seconds())) }

// source is the revision of this binary.
func source() (revision, status string) {
	revision, status = strings.Repeat("0", 40), "Clean"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				revision = setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				status = "Modified"
			}
		}
	}
	return revision, status
}

// parseSemver parses v1.2.3 and texts that begin with it; otherwise zeros.
func parseSemver(s string) (v semver) {
	if _, err := fmt.Sscanf(strings.TrimPrefix(s, "v"), "%d.%d.%d", &v.Major, &v.Minor, &v.Patch); err != nil {
		return semver{}
	}
	return v
}
