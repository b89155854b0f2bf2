// Package worker is the data plane of a program without inbound connections, such as a queue's worker: it is busy until
// signals of the program's own report that it is idle. lastcall wait --until runs it.
package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Signal is one way of asking whether a worker is idle.
type Signal struct {
	text    string   // as the user wrote it
	kind    string   // the part of text before the colon
	command []string // of exec
	url     string   // of http and metric
	metric  condition
	path    string // of file and unix
	absent  bool   // of file: idle when there is none
}

// String is the text that Parse has read.
func (s Signal) String() string { return s.text }

// Syntax describes the syntax of Parse.
const Syntax = "exec:COMMAND, http://HOST:PORT/PATH, metric:http://HOST:PORT/PATH NAME{LABEL=\"VALUE\"} <= N, " +
	"file:PATH, !file:PATH or unix:PATH"

// maxText limits a signal, which is an argument of the hook: the kernel starts no program with one of 128 KiB.
const maxText = 8 << 10

// Parse reads a signal.
func Parse(text string) (Signal, error) {
	switch {
	case len(text) > maxText:
		return Signal{}, fmt.Errorf("%.20q…: %d bytes: must be at most %d", text, len(text), maxText)
	case strings.ContainsRune(text, 0) || strings.Contains(text, `\u0000`):
		return Signal{}, fmt.Errorf("%.100q: NUL cannot be part of a program's argument", text)
	}
	s := Signal{text: text}
	kind, rest, _ := strings.Cut(text, ":")
	var err error
	switch s.kind = kind; kind {
	case "exec":
		s.command, err = parseCommand(rest)
	case "http":
		s.url, err = parseURL(text)
	case "metric":
		at, expression, _ := strings.Cut(strings.TrimSpace(rest), " ")
		if s.url, err = parseURL(at); err == nil {
			s.metric, err = parseCondition(strings.TrimSpace(expression))
		}
	case "file", "!file":
		s.path, s.absent, s.kind = rest, kind != "file", "file"
		if !filepath.IsAbs(rest) {
			err = errors.New("the path must be absolute, such as file:/run/worker/idle")
		}
	case "unix":
		if s.path = rest; !filepath.IsAbs(rest) && !strings.HasPrefix(rest, "@") {
			err = errors.New("must be an absolute path, or @ and an abstract name, such as unix:/run/worker/work.sock")
		}
	default:
		err = errors.New("must be " + Syntax)
	}
	if err != nil {
		return s, fmt.Errorf("%q: %w", text, err)
	}
	return s, nil
}

// parseCommand reads a program and its arguments: separated by blanks, or as a JSON list if one of them has blanks. No
// shell reads it.
func parseCommand(text string) (command []string, err error) {
	if strings.HasPrefix(strings.TrimSpace(text), "[") {
		if err := json.Unmarshal([]byte(text), &command); err != nil {
			return nil, fmt.Errorf(`%w: must be a JSON list, such as exec:["celery", "-A", "tasks", "status"]`, err)
		}
	} else {
		command = strings.Fields(text)
	}
	if len(command) == 0 || command[0] == "" {
		return nil, errors.New("there is no command: must be a program and its arguments, such as exec:/app/is-idle orders")
	}
	return command, nil
}

func parseURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", err
	}
	if u.Scheme != "http" || u.Hostname() == "" {
		return "", fmt.Errorf("%q must be a URL such as http://127.0.0.1:9090/metrics", text)
	}
	return text, nil
}

// condition is a comparison with the sum of the series that have a name and labels.
type condition struct {
	name   string
	labels map[string]string
	op     string
	limit  float64
}

var conditionText = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{.*\})?\s*(<=|>=|==|!=|<|>)\s*(\S+)$`)

func parseCondition(text string) (condition, error) {
	const example = `such as celery_tasks_active{queue="orders"} <= 0`
	m := conditionText.FindStringSubmatch(text)
	if m == nil {
		return condition{}, fmt.Errorf("%q must be a metric and a comparison, %s", text, example)
	}
	c := condition{name: m[1], op: m[3]}
	var err error
	if c.limit, err = strconv.ParseFloat(m[4], 64); err != nil || math.IsNaN(c.limit) {
		return c, fmt.Errorf("%q must be a number, %s", m[4], example)
	}
	s, ok := parseSeries(m[1] + m[2] + " 0")
	if !ok {
		return c, fmt.Errorf("%q: the labels must be NAME=\"VALUE\" in braces, separated by commas, %s", m[2], example)
	}
	c.labels = s.labels
	return c, nil
}

// series is one line of Prometheus' text format.
type series struct {
	name   string
	labels map[string]string
	value  float64
}

var (
	seriesText = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s*(\S+)`)
	labelText  = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)`)
	unescape   = strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n")
)

func parseSeries(line string) (series, bool) {
	m := seriesText.FindStringSubmatch(line)
	if m == nil {
		return series{}, false
	}
	s := series{name: m[1], labels: map[string]string{}}
	for rest := m[2]; strings.TrimSpace(rest) != ""; {
		label := labelText.FindStringSubmatch(rest)
		if label == nil {
			return series{}, false
		}
		s.labels[label[1]] = unescape.Replace(label[2])
		rest = rest[len(label[0]):]
	}
	var err error
	s.value, err = strconv.ParseFloat(m[3], 64)
	return s, err == nil
}

// check evaluates the condition on a page, and returns the sum. A page without such a series is an error, because a
// misspelt name would otherwise be 0.
func (c condition) check(page string) (isMet bool, sum float64, err error) {
	found := false
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, c.name) {
			continue
		}
		s, ok := parseSeries(line)
		ok = ok && s.name == c.name
		for name, value := range c.labels {
			ok = ok && s.labels[name] == value
		}
		if ok {
			found = true
			sum += s.value
		}
	}
	if !found {
		return false, 0, fmt.Errorf("the page has no series %s with the labels %v", c.name, c.labels)
	}
	if math.IsNaN(sum) { // of which each comparison is false, and != true
		return false, sum, fmt.Errorf("%s is not a number (NaN)", c.name)
	}
	switch c.op {
	case "<=":
		isMet = sum <= c.limit
	case ">=":
		isMet = sum >= c.limit
	case "==":
		isMet = sum == c.limit
	case "!=":
		isMet = sum != c.limit
	case "<":
		isMet = sum < c.limit
	case ">":
		isMet = sum > c.limit
	}
	return isMet, sum, nil
}
