package admin

import (
	"log/slog"
	"net/http"
	"strings"
)

// levels are Envoy's names, the most verbose first. slog has no trace and no critical; they are next to debug and
// error.
var levels = []struct {
	name  string
	level slog.Level
}{
	{"trace", slog.LevelDebug - 4},
	{"debug", slog.LevelDebug},
	{"info", slog.LevelInfo},
	{"warning", slog.LevelWarn},
	{"error", slog.LevelError},
	{"critical", slog.LevelError + 4},
	{"off", slog.LevelError + 100},
}

// logger is the only one there is.
const logger = "main"

// level is the name of the current level.
func (s *Server) level() string {
	now := slog.LevelInfo
	if s.Level != nil {
		now = s.Level.Level()
	}
	for _, l := range levels {
		if now <= l.level {
			return l.name
		}
	}
	return "off"
}

// logging reports the level, and changes it.
func (s *Server) logging(q query) answer {
	loggers := "active loggers:\n  " + logger + ": "
	if problem := s.setLevel(q); problem != "" {
		return text(http.StatusBadRequest, "error: "+problem+`

usage: /logging?<name>=<level> (change single level)
usage: /logging?paths=name1:level1,name2:level2,... (change multiple levels)
usage: /logging?level=<level> (change all levels)
usage: /logging?group=<group_name>:<level> (change group of loggers)
levels: trace debug info warning error critical off 
`+loggers+s.level()+"\n\n")
	}
	return text(http.StatusOK, loggers+s.level()+"\n\n")
}

// setLevel applies the only valid parameter, and reports errors in Envoy's words.
func (s *Server) setLevel(q query) (problem string) {
	if len(q) == 0 {
		return ""
	}
	if len(q) > 1 {
		return "invalid number of parameters"
	}
	name, level := q[0].name, q[0].value
	switch name {
	case "level":
		if level == "" {
			return ""
		}
	case "group":
		return "group parameter requires fine-grain logging to be enabled"
	case "paths":
		for pair := range strings.SplitSeq(level, ",") {
			if pair == "" {
				continue
			}
			name, level, _ := strings.Cut(pair, ":")
			if problem := s.setLogger(name, level); problem != "" {
				return problem
			}
		}
		return ""
	default:
		return s.setLogger(name, level)
	}
	return s.setLogger(logger, level)
}

func (s *Server) setLogger(name, level string) (problem string) {
	if name == "" || level == "" {
		return "empty logger name or empty logger level"
	}
	for _, l := range levels {
		if l.name != level {
			continue
		}
		if name != logger {
			return "unknown logger name"
		}
		if s.Level != nil {
			s.Level.Set(l.level)
		}
		return ""
	}
	return "unknown logger level"
}
