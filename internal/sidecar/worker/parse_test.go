package worker

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{ // of the error; empty for none
		"exec:/app/is-idle orders":                   "",
		`exec:["sh", "-c", "test -e /idle"]`:         "",
		"http://127.0.0.1:9090/idle":                 "",
		"metric:http://127.0.0.1:9090/metrics a<=0":  "",
		`metric:http://h/m a{b="c d",e="}\""} > 1e3`: "",
		"file:/run/idle":                             "",
		"!file:/run/busy":                            "",
		"unix:/run/work.sock":                        "",
		"unix:@work":                                 "",
		"":                                           "must be exec:COMMAND, http://",
		"idle":                                       "must be exec:COMMAND, http://",
		"!exec:true":                                 "must be exec:COMMAND, http://",
		"https://127.0.0.1/":                         "must be exec:COMMAND, http://",
		"exec: ":                                     "there is no command",
		"exec:[]":                                    "there is no command",
		`exec:["a"`:                                  "must be a JSON list",
		"http://":                                    "must be a URL such as",
		"http:///idle":                               "must be a URL such as",
		"http://127.0.0.1:port/":                     "invalid port",
		"metric:http://h/m":                          "must be a metric and a comparison",
		"metric:ftp://h/m a > 0":                     "must be a URL such as",
		"metric:http://h/m a = 0":                    "must be a metric and a comparison",
		"metric:http://h/m a > zero":                 `"zero" must be a number`,
		"metric:http://h/m a{b=c} > 0":               "the labels must be",
		"file:idle":                                  "must be absolute",
		"!file:":                                     "must be absolute",
		"unix:work.sock":                             "must be an absolute path",
	} {
		s, err := Parse(text)
		switch {
		case s.String() != text:
			t.Errorf("%q reads as %q", text, s)
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	for text, want := range map[string][]string{
		"exec:  celery  -A tasks inspect\tactive": {"celery", "-A", "tasks", "inspect", "active"},
		`exec:["sh","-c","test $(ls | wc -l)"]`:   {"sh", "-c", "test $(ls | wc -l)"},
	} {
		if s, err := Parse(text); err != nil || !slices.Equal(s.command, want) {
			t.Errorf("%s: %q, %v; want %q", text, s.command, err, want)
		}
	}
}

func TestCondition(t *testing.T) {
	const page = `# HELP jobs Jobs.
# TYPE jobs gauge
jobs{queue="orders",node="a"} 2
jobs{node="b",queue="orders"} 3 1700000000000
jobs{queue="mail \"x\"}",} 1e1 # {trace_id="1"} 0.67
jobs_total 40
idle 1
broken{queue=orders} 1
not_a_number NaN
`
	for text, want := range map[string]string{
		`jobs == 15`:                          "met",
		`jobs{queue="orders"} <= 5`:           "met",
		`jobs{queue="orders"} < 5`:            "not met",
		`jobs{queue="orders",node="b"} > 2`:   "met",
		`jobs{ queue = "mail \"x\"}" } >= 10`: "met",
		`jobs_total != 40`:                    "not met",
		`jobs_total > 39`:                     "met",
		`idle==1`:                             "met",
		`not_a_number <= 0`:                   "not_a_number is not a number",
		`not_a_number != 0`:                   "not_a_number is not a number",
		`job == 0`:                            "the page has no series job",
		`jobs{queue="none"} == 0`:             "the page has no series jobs with the labels map[queue:none]",
		`broken == 1`:                         "the page has no series broken",
	} {
		c, err := parseCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := "not met"
		isMet, _, err := c.check(page)
		switch {
		case err != nil:
			got = err.Error()
		case isMet:
			got = "met"
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s; want %s", text, got, want)
		}
	}
}

// FuzzParse looks for texts that make the parser, or the one of a page, fail otherwise than by an error.
func FuzzParse(f *testing.F) {
	f.Add(`metric:http://h/m jobs{queue="orders"} <= 0`, `jobs{queue="orders"} 1`)
	f.Add("exec:[\"a\"]", "")
	f.Fuzz(func(_ *testing.T, text, page string) {
		if s, err := Parse(text); err == nil && s.kind == "metric" {
			_, _, _ = s.metric.check(page)
		}
	})
}
