package admin

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// state is Envoy's server.state. The two states before the data plane serves do not occur: the API is not available
// then.
type state uint64

const (
	serves state = 0
	fails  state = 1 // Envoy's name is draining, but a drain does not lead to it
)

func (s state) String() string {
	if s == serves {
		return "LIVE"
	}
	return "DRAINING"
}

func (s *Server) state() state {
	if failed, _ := s.draining.state(); failed {
		return fails
	}
	return serves
}

// hotRestart is the version of an Envoy with --disable-hot-restart, as Istio's is.
const hotRestart = "disabled"

func (s *Server) hotRestartVersion(query) answer { return text(http.StatusOK, hotRestart) }

type serverInfo struct {
	Version      string      `json:"version"`
	State        string      `json:"state"`
	Uptime       string      `json:"uptime_current_epoch"`
	UptimeAll    string      `json:"uptime_all_epochs"`
	HotRestart   string      `json:"hot_restart_version"`
	Options      commandLine `json:"command_line_options"`
	Node         node        `json:"node"`
	Initializing bool        `json:"hot_restart_initializing"`
}

// commandLine has Envoy's options with the values that fit this process. Options that do not apply have Envoy's
// defaults, because tools expect them.
type commandLine struct {
	BaseID                     string   `json:"base_id"`
	Concurrency                int      `json:"concurrency"`
	ConfigPath                 string   `json:"config_path"`
	ConfigYAML                 string   `json:"config_yaml"`
	AllowUnknownStaticFields   bool     `json:"allow_unknown_static_fields"`
	AdminAddressPath           string   `json:"admin_address_path"`
	LocalAddressIPVersion      string   `json:"local_address_ip_version"`
	LogLevel                   string   `json:"log_level"`
	ComponentLogLevel          string   `json:"component_log_level"`
	LogFormat                  string   `json:"log_format"`
	LogPath                    string   `json:"log_path"`
	ServiceCluster             string   `json:"service_cluster"`
	ServiceNode                string   `json:"service_node"`
	ServiceZone                string   `json:"service_zone"`
	FileFlushInterval          string   `json:"file_flush_interval"`
	DrainTime                  string   `json:"drain_time"`
	ParentShutdownTime         string   `json:"parent_shutdown_time"`
	Mode                       string   `json:"mode"`
	DisableHotRestart          bool     `json:"disable_hot_restart"`
	EnableMutexTracing         bool     `json:"enable_mutex_tracing"`
	RestartEpoch               int      `json:"restart_epoch"`
	CPUSetThreads              bool     `json:"cpuset_threads"`
	RejectUnknownDynamicFields bool     `json:"reject_unknown_dynamic_fields"`
	LogFormatEscaped           bool     `json:"log_format_escaped"`
	DisabledExtensions         []string `json:"disabled_extensions"`
	IgnoreUnknownDynamicFields bool     `json:"ignore_unknown_dynamic_fields"`
	UseDynamicBaseID           bool     `json:"use_dynamic_base_id"`
	BaseIDPath                 string   `json:"base_id_path"`
	DrainStrategy              string   `json:"drain_strategy"`
	EnableFineGrainLogging     bool     `json:"enable_fine_grain_logging"`
	SocketPath                 string   `json:"socket_path"`
	SocketMode                 int      `json:"socket_mode"`
	EnableCoreDump             bool     `json:"enable_core_dump"`
	StatsTag                   []string `json:"stats_tag"`
	SkipHotRestartOnNoParent   bool     `json:"skip_hot_restart_on_no_parent"`
	SkipHotRestartParentStats  bool     `json:"skip_hot_restart_parent_stats"`
	SkipDeprecatedLogs         bool     `json:"skip_deprecated_logs"`
	FileFlushMinSize           int      `json:"file_flush_min_size"`
	LogStacktraceSingleEntry   bool     `json:"log_stacktrace_single_entry"`
}

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
	revision, status := source()
	return indented(serverInfo{
		Version:    strings.Join([]string{revision, s.Version, status, "RELEASE", "Go"}, "/"),
		State:      s.state().String(),
		Uptime:     uptime,
		UptimeAll:  uptime,
		HotRestart: hotRestart,
		Options: commandLine{
			BaseID:                "0",
			Concurrency:           runtime.GOMAXPROCS(0),
			LocalAddressIPVersion: "v4",
			LogLevel:              s.level(),
			FileFlushInterval:     "0s", // the access log is not buffered
			DrainTime:             seconds(s.DrainTime),
			ParentShutdownTime:    "900s",
			Mode:                  "Serve",
			DisableHotRestart:     true,
			DisabledExtensions:    []string{},
			DrainStrategy:         "Immediate",
			SocketPath:            "@envoy_domain_socket",
			StatsTag:              []string{},
		},
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
func parseSemver(s string) semver {
	s, _, _ = strings.Cut(strings.TrimPrefix(s, "v"), "-")
	var n [3]int
	for i, part := range strings.SplitN(s, ".", 3) {
		var err error
		if n[i], err = strconv.Atoi(part); err != nil {
			return semver{}
		}
	}
	return semver{n[0], n[1], n[2]}
}
