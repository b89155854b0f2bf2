package notice

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// metadata is a cloud's service, with the documented paths, headers and codes. It has no socket: virtual time does not
// pass while one is waited for.
type metadata struct {
	serve func(m *metadata, w http.ResponseWriter, r *http.Request)

	mu      sync.Mutex // guards what follows
	answers map[string]string
	changed chan struct{}
	asked   int
	expires int // of so many requests with an AWS token, the last one is refused
}

func service(serve func(*metadata, http.ResponseWriter, *http.Request)) *metadata {
	return &metadata{serve: serve, answers: map[string]string{}, changed: make(chan struct{})}
}

func (m *metadata) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.serve(m, w, r)
	return w.Result(), r.Context().Err()
}

func (m *metadata) set(path, answer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[path] = answer
	close(m.changed)
	m.changed = make(chan struct{})
}

// answer writes what the service has at a path: nothing is 404.
func (m *metadata) answer(w http.ResponseWriter, path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	text, ok := m.answers[path]
	if !ok {
		http.Error(w, "", http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", text)
	_, _ = w.Write([]byte(text))
}

func aws(m *metadata, w http.ResponseWriter, r *http.Request) {
	switch path := strings.TrimPrefix(r.URL.Path, "/latest/"); {
	case r.Method == http.MethodPut && path == "api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
		_, _ = w.Write([]byte("AQAEAI-token"))
	case r.Header.Get("X-aws-ec2-metadata-token") != "AQAEAI-token": // IMDSv2 only
		http.Error(w, "", http.StatusUnauthorized)
	case m.expires == 1:
		m.expires = 0
		http.Error(w, "", http.StatusUnauthorized)
	default:
		m.expires = max(0, m.expires-1)
		m.answer(w, path)
	}
}

func gcp(m *metadata, w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata-Flavor") != "Google" {
		http.Error(w, "Missing Metadata-Flavor:Google header.", http.StatusForbidden)
		return
	}
	m.mu.Lock()
	change := m.changed
	m.mu.Unlock()
	if r.URL.Query().Get("wait_for_change") == "true" {
		select {
		case <-change:
		case <-time.After(60 * time.Second): // timeout_sec
		case <-r.Context().Done():
			return
		}
	}
	m.answer(w, strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/"))
}

func azure(m *metadata, w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Metadata") != "true" || r.URL.Query().Get("api-version") == "" {
		http.Error(w, `{"error": "Bad request. Required metadata header not specified"}`, http.StatusBadRequest)
		return
	}
	m.answer(w, strings.TrimPrefix(r.URL.Path, "/metadata/"))
}

// event is a document of one scheduled event, as Azure's documentation shows it.
func event(kind, resource, notBefore string) string {
	return `{"DocumentIncarnation": 2, "Events": [{"EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123", "EventStatus": "Scheduled",
		"EventType": "` + kind + `", "ResourceType": "VirtualMachine", "Resources": ["other", "` + resource + `"], "NotBefore": "` + notBefore + `",
		"Description": "", "EventSource": "Platform", "DurationInSeconds": -1}]}`
}

// The bubble of testing/synctest begins at midnight of 1 January 2000.
func TestNotices(t *testing.T) {
	const instanceAction, rebalance = "meta-data/spot/instance-action", "meta-data/events/recommendations/rebalance"
	begin := func(m *metadata) {}
	for _, tt := range []struct {
		name  string
		cloud string
		serve func(*metadata, http.ResponseWriter, *http.Request)
		begin func(*metadata)
		path  string // gets value after 20 s
		value string
		kind  string
		at    time.Duration // from the beginning
		known time.Duration // no later than
	}{
		{"aws terminates", "aws", aws, begin, instanceAction, `{"action": "terminate", "time": "2000-01-01T00:02:20Z"}`, AWSSpot, 140 * time.Second, 25 * time.Second},
		{"aws stops", "aws", aws, begin, instanceAction, `{"action": "stop", "time": "2000-01-01T00:02:20Z"}`, AWSSpot, 140 * time.Second, 25 * time.Second},
		{"aws, after the end of a token", "aws", aws, func(m *metadata) { m.expires = 5 }, instanceAction, `{"action": "terminate", "time": "2000-01-01T00:02:20Z"}`, AWSSpot, 140 * time.Second, 40 * time.Second},
		{"aws recommends", "aws", aws, begin, rebalance, `{"noticeTime": "2000-01-01T00:00:20Z"}`, AWSRebalance, 0, 25 * time.Second},
		{"gcp", "gcp", gcp, func(m *metadata) { m.set("instance/preempted", "FALSE") }, "instance/preempted", "TRUE", GCPPreemption, 50 * time.Second, 20 * time.Second},
		{"azure preempts", "azure", azure, func(m *metadata) {
			m.set("instance/compute/name", "node_3")
			m.set("scheduledevents", `{"DocumentIncarnation":1,"Events":[]}`)
		},
			"scheduledevents", event("Preempt", "node_3", "Sat, 01 Jan 2000 00:00:50 GMT"), AzurePreempt, 50 * time.Second, 25 * time.Second},
		{"azure deletes", "azure", azure, func(m *metadata) {
			m.set("instance/compute/name", "node_3")
			m.set("scheduledevents", `{"DocumentIncarnation":1,"Events":[]}`)
		},
			"scheduledevents", event("Terminate", "node_3", "Sat, 01 Jan 2000 00:05:20 GMT"), AzureTerminate, 320 * time.Second, 25 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				m := service(tt.serve)
				tt.begin(m)
				ctx, cancel := context.WithCancel(t.Context())
				var following sync.WaitGroup
				defer following.Wait()
				defer cancel()
				notices := make(chan Notice, 10)
				s := &Service{Cloud: tt.cloud, Client: m, Log: slog.New(slog.DiscardHandler)}
				following.Go(func() { _ = s.Follow(ctx, func(n Notice) { notices <- n }) })
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if len(notices) > 0 {
					t.Fatalf("announced before: %+v", <-notices)
				}
				m.set(tt.path, tt.value)
				n := <-notices
				if took := time.Since(began); took > tt.known {
					t.Errorf("known after %v", took)
				}
				if n.Kind != tt.kind || tt.at == 0 != n.At.IsZero() || tt.at > 0 && n.At.Sub(began).Round(time.Second) != tt.at {
					t.Errorf("%+v, want %s in %v", n, tt.kind, tt.at)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if len(notices) > 0 {
					t.Errorf("announced again: %+v", <-notices)
				}
				if m.asked > 200 {
					t.Errorf("%d requests in less than three minutes", m.asked)
				}
				m.mu.Lock()
				delete(m.answers, tt.path)
				m.mu.Unlock()
				m.set("scheduledevents", `{"DocumentIncarnation":3,"Events":[]}`)
				m.set("instance/preempted", "FALSE")
				if n := <-notices; n != (Notice{}) {
					t.Errorf("withdrawn: %+v", n)
				}
			})
		})
	}
}

// TestNotForThisMachine: all machines of a scale set get the events of all.
func TestNotForThisMachine(t *testing.T) {
	for _, text := range []string{event("Preempt", "node_4", "Sat, 01 Jan 2000 00:00:50 GMT"), event("Freeze", "node_3", "Sat, 01 Jan 2000 00:00:50 GMT")} {
		m := service(azure)
		m.set("instance/compute/name", "node_3")
		m.set("scheduledevents", text)
		s := &Service{Cloud: "azure", Client: m}
		if n, err := s.askAzure(t.Context()); err != nil || n != (Notice{}) {
			t.Errorf("%+v, %v", n, err)
		}
	}
}

// TestBrokenServices has services that hang, refuse, answer without end or with something else: no notice, and few
// requests.
func TestBrokenServices(t *testing.T) {
	for _, cloud := range Clouds {
		for name, serve := range map[string]func(*metadata, http.ResponseWriter, *http.Request){
			"hangs":   func(_ *metadata, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			"refuses": func(_ *metadata, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
			"fails": func(_ *metadata, w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
			},
			"redirects": func(_ *metadata, w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://10.0.0.1/", http.StatusFound)
			},
			"floods":     func(_ *metadata, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxAnswer+1)) },
			"no content": func(_ *metadata, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		} {
			t.Run(cloud+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					asked := 0
					m := service(func(m *metadata, w http.ResponseWriter, r *http.Request) {
						asked++
						serve(m, w, r)
					})
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					s := &Service{Cloud: cloud, Client: m, Log: slog.New(slog.DiscardHandler)}
					if err := s.Follow(ctx, func(n Notice) { t.Errorf("%+v", n) }); err != nil {
						t.Error(err)
					}
					if name != "no content" && asked > 40 {
						t.Errorf("%d requests in 10 minutes", asked)
					}
				})
			})
		}
	}
	if err := (&Service{Cloud: "moon"}).Follow(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "aws, gcp, azure") {
		t.Error(err)
	}
}
