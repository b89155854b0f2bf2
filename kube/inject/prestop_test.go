package inject

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

func execOf(command ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

// TestJoinOf: which hooks only sleep, and what becomes of each.
func TestJoinOf(t *testing.T) {
	type h = corev1.LifecycleHandler
	sh := func(line string) *h { return execOf("/bin/sh", "-c", line) }
	replaced := func(d time.Duration) Join { return Join{Merge: MergeReplaces, Sleep: d} }
	adds, runs, keeps := Join{Merge: MergeAdds}, Join{Merge: MergeRuns}, Join{Merge: MergeKeeps}
	for name, c := range map[string]struct {
		own  *h
		word string
		want Join
	}{
		"none":                  {nil, "", adds},
		"none, keep":            {nil, "keep", adds},
		"none, none":            {nil, "none", keeps},
		"tcpSocket":             {&h{TCPSocket: &corev1.TCPSocketAction{}}, "", adds},
		"no command":            {execOf(), "", adds},
		"a negative sleep":      {&h{Sleep: &corev1.SleepAction{Seconds: -5}}, "", adds},
		"two at once":           {&h{Sleep: &corev1.SleepAction{Seconds: 5}, TCPSocket: &corev1.TCPSocketAction{}}, "", adds},
		"sleep":                 {&h{Sleep: &corev1.SleepAction{Seconds: 5}}, "", replaced(5 * time.Second)},
		"sleep, keep":           {&h{Sleep: &corev1.SleepAction{Seconds: 5}}, "keep", keeps},
		"sleep, replace":        {&h{Sleep: &corev1.SleepAction{Seconds: 5}}, "replace", replaced(0)},
		"sleep, none":           {&h{Sleep: &corev1.SleepAction{Seconds: 5}}, "none", keeps},
		"exec sleep":            {execOf("sleep", "5"), "", replaced(5 * time.Second)},
		"exec sleep, a unit":    {execOf("/usr/bin/sleep", "0.5m"), "", replaced(30 * time.Second)},
		"busybox":               {execOf("/busybox/busybox", "sleep", "7"), "", replaced(7 * time.Second)},
		"shell":                 {sh("sleep 15"), "", replaced(15 * time.Second)},
		"bash":                  {execOf("bash", "-c", "--", " sleep 15 ;"), "", replaced(15 * time.Second)},
		"bash -ec":              {execOf("/bin/bash", "-ec", "/bin/sleep 15s"), "", replaced(15 * time.Second)},
		"shell, exec":           {sh("exec sleep 15"), "", replaced(15 * time.Second)},
		"busybox sh":            {execOf("busybox", "sh", "-c", "sleep 3"), "", replaced(3 * time.Second)},
		"two sleeps":            {sh("sleep 5 && sleep 10"), "", replaced(15 * time.Second)},
		"a message":             {sh("echo 'leaving; soon'; sleep 20; exit 0"), "", replaced(20 * time.Second)},
		"whatever it returns":   {sh("sleep 4 || true"), "", replaced(4 * time.Second)},
		"lines":                 {sh("echo bye\nsleep 4\n"), "", replaced(4 * time.Second)},
		"another command":       {execOf("/leave"), "", runs},
		"another, keep":         {execOf("/leave"), "keep", keeps},
		"another, replace":      {execOf("/leave"), "replace", replaced(0)},
		"sleep and more":        {sh("sleep 10; /leave"), "", runs},
		"sleep and quit":        {sh("sleep 10; nginx -s quit"), "", replaced(10 * time.Second)},
		"sleep and SIGTERM":     {sh("sleep 10; kill -15 1"), "", replaced(10 * time.Second)},
		"sleep and SIGINT":      {sh("sleep 10; kill -2 1"), "", runs},
		"quit":                  {execOf("nginx", "-s", "quit"), "", runs},
		"quit and sleep":        {sh("nginx -s quit; sleep 10"), "", runs},
		"without an end":        {execOf("sleep", "infinity"), "", runs},
		"a file":                {sh("echo > /tmp/down; sleep 10"), "", runs},
		"a substitution":        {sh(`echo "$(touch /tmp/down)"; sleep 10`), "", runs},
		"in the background":     {sh("sleep 10 & /leave"), "", runs},
		"unknown time":          {sh("sleep $DELAY"), "", runs},
		"unknown time, operand": {execOf("sleep", "infinity"), "", runs},
		"one unknown operand":   {execOf("sleep", "5", "$X"), "", runs},
		"a loop":                {sh("while pgrep -f worker; do sleep 1; done"), "", runs},
		"a condition":           {sh("test -f /tmp/x && sleep 5"), "", runs},
		"httpGet":               {&h{HTTPGet: &corev1.HTTPGetAction{Path: "/bye", Port: intstr.FromInt32(8080)}}, "", runs},
		"ours":                  {&h{HTTPGet: &corev1.HTTPGetAction{Path: "/wait/0123456789abcdef"}}, "keep", adds},
		"ours with theirs":      {execOf(binary, "wait", "--after", "28s", "--", "/leave"), "", runs},
	} {
		p := aPod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{}
			if c.word != "" {
				p.Annotations[annotationPreStop] = c.word
			}
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: c.own}
		})
		got := JoinOf(p, &p.Spec.Containers[0])
		if got.Stopper = ""; got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestStopOfTheApp: a hook that ends an app to which the kubelet's stop signal does not pass is kept.
func TestStopOfTheApp(t *testing.T) {
	for _, command := range [][]string{{"sh", "-c", "node app.js"}, {"tini", "--", "sh", "-c", "node app.js"}, {"uwsgi", "--master"}} {
		p := aPod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = command
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: execOf("sh", "-c", "sleep 5; killall -INT app")}
		})
		if got := JoinOf(p, &p.Spec.Containers[0]); got.Merge != MergeRuns {
			t.Errorf("%q: %+v", command, got)
		}
	}
}

// TestMergedHook: the hook that each form of lastcall gets, the same after a second injection.
func TestMergedHook(t *testing.T) {
	get := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "bye?now", Port: intstr.FromString("http"),
		HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Why", Value: "end: now"}}}}
	sleep := execOf("sh", "-c", "sleep 12")
	for _, c := range []struct {
		name    string
		proxy   Proxy
		sidecar Sidecar
		own     *corev1.LifecycleHandler
		want    string // empty: httpGet
		minimum string
	}{
		{"native, sleep", Pipe, Native, sleep, "", "12s"},
		{"native, a short sleep", Pipe, Native, execOf("sleep", "2"), "", ""},
		{"native, command", Pipe, Native, execOf("/leave", "--ports"), "wait --after 28s -- /leave --ports", ""},
		{"native, request", Pipe, Native, get, "wait --after 28s -- http://localhost:8080/bye?now X-Why: end: now", ""},
		{"classic, sleep", Pipe, Classic, sleep, "wait", "12s"},
		{"classic, command", Pipe, Classic, execOf("/leave"), "wait --after 28s -- /leave", ""},
		{"sockets, sleep", Sockets, "", sleep, "wait --ports 8080/http --report /dev/termination-log --minimum-drain 12s", ""},
		{"sockets, command", Sockets, "", execOf("/leave"), "wait --ports 8080/http --report /dev/termination-log --after 25s -- /leave", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := testOptions()
			o.Sidecar = c.sidecar
			p := aPod(func(p *corev1.Pod) {
				p.Annotations = map[string]string{annotationProxy: string(c.proxy)}
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: c.own.DeepCopy()}
			})
			got, r := Pod(p, o)
			web := pod.Find(&got.Spec, "web")
			h := web.Lifecycle.PreStop
			switch {
			case r.Outcome != Injected:
				t.Fatalf("%+v", r)
			case c.want == "" && !pod.IsWaitGet(h), c.want != "" && (!isExecHook(h) || strings.Join(h.Exec.Command[1:], " ") != c.want):
				t.Errorf("the hook is %+v, want %q", h, c.want)
			case isExecHook(h) && (!mounts(web) || pod.Find(&got.Spec, containerCopy) == nil && !mounts(pod.Find(&got.Spec, pod.Sidecar))):
				t.Error("the program of the hook is not in the container")
			}
			if sidecar := pod.Find(&got.Spec, pod.Sidecar); sidecar != nil {
				if minimum, _ := pod.Variable(sidecar, meshconfig.VariableMinimumDrain); minimum != c.minimum {
					t.Errorf("the minimum drain is %q, want %q", minimum, c.minimum)
				}
				if probes, _ := pod.Variable(sidecar, meshconfig.VariableProbes); strings.Contains(probes, "prestopz") {
					t.Errorf("the agent answers a hook that lastcall's runs: %s", probes)
				}
			}
			if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "container web: lastcall's hook ") }) {
				t.Errorf("notes %q", r.Notes)
			}
			checkAgain(t, t.Name(), got, o)
			if back := pod.Restored(h); strings.Contains(c.want, "--after") && back.Exec != nil && !reflect.DeepEqual(back, c.own) {
				t.Errorf("taken out again, the hook is %+v, was %+v", back, c.own)
			}
		})
	}
}
