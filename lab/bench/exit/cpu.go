package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// watched is how long the cost of watching is measured.
const watched = 20 * time.Second

// costs measures the processor time of the agent and of Envoy over 20 s: serving
// without watching, then waiting for 10 connections.
func costs(app string) error {
	if *proxy != "envoy" {
		return errors.New("-cpu measures an Envoy: -proxy envoy")
	}
	fmt.Printf("| 20 s with 10 requests in flight | agent | Envoy, not watched | Envoy, watched | watching, of a core |\n|---|---|---|---|---|\n")
	for _, c := range []struct {
		what     string
		clusters int
		all      bool
		chatter  bool
	}{
		{"1 cluster", 1, false, false},
		{"1 cluster, bytes move each 100 ms on 5 of 10", 1, false, true},
		{"5,000 clusters, stats by the matcher", 5000, false, false},
		{"5,000 clusters, stats by the matcher, bytes move each 100 ms on 5 of 10", 5000, false, true},
		{"5,000 clusters, all stats, bytes move each 100 ms on 5 of 10", 5000, true, true},
	} {
		agent, before, after, err := cost(app, c.clusters, c.all, c.chatter)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		share := 100 * float64(agent+max(0, after-before)) / float64(watched)
		fmt.Printf("| %s | %s | %s | %s | **%.2f %%** |\n", c.what, ms(agent), ms(before), ms(after), share)
	}
	return nil
}

func cost(app string, clusters int, all, chatter bool) (agent, before, after time.Duration, err error) {
	s, err := start(app, "http", []string{"TERMINATION_GRACE_PERIOD_SECONDS=120", "MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=0s"},
		func(admin, listen string) []byte { return config(admin, listen, app, clusters, all) })
	if err != nil {
		return 0, 0, 0, err
	}
	defer s.end()
	for i := range 10 {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			return 0, 0, 0, err
		}
		defer conn.Close()
		if chatter && i%2 == 0 { // an upload that continues
			fmt.Fprintf(conn, "POST /120000 HTTP/1.1\r\nHost: app\r\nContent-Length: 1000000\r\n\r\n")
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			go func() {
				for range tick.C {
					if _, err := conn.Write([]byte("x")); err != nil {
						return
					}
				}
			}()
		} else {
			fmt.Fprintf(conn, "GET /120000 HTTP/1.1\r\nHost: app\r\n\r\n")
		}
	}
	pids, err := s.pids()
	if err != nil || len(pids) != 2 {
		return 0, 0, 0, fmt.Errorf("%d processes; want the agent and Envoy: %w", len(pids), err)
	}
	time.Sleep(2 * time.Second) // what the start has left over
	b, err := used(pids[1], watched)
	if err != nil {
		return 0, 0, 0, err
	}
	s.terminate()
	time.Sleep(time.Second)
	agentUsed, errs := make(chan time.Duration, 1), make(chan error, 1)
	go func() {
		d, err := used(pids[0], watched)
		agentUsed <- d
		errs <- err
	}()
	a, err := used(pids[1], watched)
	return <-agentUsed, b, a, errors.Join(err, <-errs)
}

// used is the processor time that a process takes within a time.
func used(pid int, within time.Duration) (time.Duration, error) {
	before, err := processorTime(pid)
	if err != nil {
		return 0, err
	}
	time.Sleep(within)
	after, err := processorTime(pid)
	return after - before, err
}

// processorTime adds up what the threads have used: exact, where utime and stime
// of /proc/PID/stat count in ticks of 10 ms.
func processorTime(pid int) (sum time.Duration, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		return 0, fmt.Errorf("process %d has no threads: %w", pid, err)
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(b), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// config is an Envoy with many clusters, all of them but one for show.
func config(admin, listen, app string, clusters int, all bool) []byte {
	type m map[string]any
	address := func(at string) m {
		host, port, _ := net.SplitHostPort(at)
		n, _ := strconv.Atoi(port)
		return m{"socket_address": m{"address": host, "port_value": n}}
	}
	const types = "type.googleapis.com/envoy.extensions.filters."
	cluster := func(i int) m {
		name := "cluster" + strconv.Itoa(i)
		return m{"name": name, "type": "STATIC", "load_assignment": m{"cluster_name": name, "endpoints": []m{{"lb_endpoints": []m{{"endpoint": m{"address": address(app)}}}}}}}
	}
	var list []m
	for i := range clusters {
		list = append(list, cluster(i))
	}
	c := m{
		"admin": m{"address": address(admin)},
		"static_resources": m{"clusters": list, "listeners": []m{{
			"traffic_direction": "INBOUND", "address": address(listen),
			"filter_chains": []m{{"filters": []m{{"name": "http", "typed_config": m{
				"@type": types + "network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "inbound", "stream_idle_timeout": "0s",
				"route_config": m{"virtual_hosts": []m{{"name": "app", "domains": []string{"*"}, "routes": []m{{
					"match": m{"prefix": "/"}, "route": m{"cluster": "cluster0", "timeout": "0s"},
				}}}}},
				"http_filters": []m{{"name": "router", "typed_config": m{"@type": types + "http.router.v3.Router"}}},
			}}}}},
		}}},
	}
	if !all {
		var patterns []m
		for _, suffix := range []string{"downstream_cx_active", "downstream_rq_active", "downstream_rq_total"} {
			patterns = append(patterns, m{"suffix": suffix})
		}
		c["stats_config"] = m{"stats_matcher": m{"inclusion_list": m{"patterns": patterns}}}
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // plain maps
	}
	return b
}
