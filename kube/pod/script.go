package pod

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"mvdan.cc/sh/v3/syntax"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// Limits of a script that is read: a pod's author may be an attacker of the webhook.
const (
	maxScript   = 16 << 10
	maxCommands = 2000
	maxValue    = 256
)

// The process numbers that stand for $$ and $!: the hook's shell, and a command that it has in the background.
const (
	ownShell = "4194305" // above the kernel's largest
	ownChild = "4194306"
)

// result is a command's exit.
type result int

const (
	open result = iota // not known
	succeeds
	fails
)

func (r result) not() result { return [...]result{open, fails, succeeds}[r] }

// reading follows a hook's script without running it.
type reading struct {
	spec      *corev1.PodSpec
	container *corev1.Container
	vars      map[string]string
	args      []string // $0, $1 and so on; nil if they are unknown
	round     string   // of a loop: what differs from the round before, but for vars
	funcs     map[string]*syntax.Stmt
	commands  *int // read so far

	steps []Step
	later []later

	exits, breaks       bool // exit, exec or return; break or continue
	returns, isExempt   bool // exempt from set -e
	mayExit, mayBreak   bool
	isContinue, errexit bool
	awaitsSockets       bool // it looks at the kernel's list of connections
	traps               bool // it may survive the signal of timeout
}

// later is a command in the background.
type later struct {
	Hook
	from time.Duration
	text string
}

func newReading(spec *corev1.PodSpec, c *corev1.Container) *reading {
	r := &reading{spec: spec, container: c, vars: map[string]string{"$": ownShell, "!": ownChild},
		funcs: map[string]*syntax.Stmt{}, commands: new(int)}
	var expansion manifest.Expansion
	for _, e := range expansion.Container(*c).Env {
		if e.ValueFrom == nil && len(e.Value) <= maxValue && !strings.Contains(e.Value, "$(") {
			r.vars[e.Name] = e.Value
		}
	}
	return r
}

// fork is a reading of commands that may not run, or whose variables are their own.
func (r *reading) fork() *reading {
	child := *r
	child.vars, child.steps, child.later = maps.Clone(r.vars), nil, nil
	child.mayExit, child.mayBreak = false, false
	return &child
}

// add adds steps; sleeps that follow each other become one.
func (r *reading) add(steps ...Step) {
	for _, s := range steps {
		if n := len(r.steps) - 1; n >= 0 && s.Do == Sleep && r.steps[n].Do == Sleep {
			r.steps[n].For = min(r.steps[n].For+s.For, Forever)
		} else {
			r.steps = append(r.steps, s)
		}
	}
}

func (r *reading) unknown(text string) result {
	r.add(Step{Do: Unknown, MayStop: true, Text: text})
	return open
}

func (r *reading) fail(why string) result {
	r.add(Step{Do: Fails, Text: why})
	return fails
}

// either adds what the manifest shows of steps of which some run, or none.
func (r *reading) either(ways ...[]Step) {
	out := Step{Do: Unknown, For: Forever}
	isSame, first := true, summarize(ways[0])
	for _, steps := range ways {
		h := summarize(steps)
		most := h.Most
		if h.IsKnown {
			most = h.Duration
		} else if most == 0 {
			most = Forever
		}
		out.For, out.Most, out.MayStop = min(out.For, h.Duration), max(out.Most, most), out.MayStop || h.ends()
		isSame = isSame && h.IsKnown && first.IsKnown && h.Duration == first.Duration
		for _, s := range steps {
			if out.Text == "" && s.Do != Sleep {
				out.Text = s.Text
			}
		}
	}
	switch {
	case !isSame || out.MayStop:
		if out.Most == Forever {
			out.Most = 0
		}
		r.add(out)
	case out.For > 0: // others are commands without a duration
		r.add(Step{Do: Sleep, For: out.For})
	}
}

// some reads ways of which one is taken.
func (r *reading) some(ways ...func(*reading)) result {
	var all [][]Step
	for _, read := range ways {
		child := r.fork()
		read(child)
		r.mayExit, r.mayBreak = r.mayExit || child.exits || child.mayExit, r.mayBreak || child.breaks || child.mayBreak
		r.awaitsSockets = r.awaitsSockets || child.awaitsSockets
		all = append(all, child.steps)
	}
	r.either(all...)
	return open
}

// nothing is a way without a command.
func nothing(*reading) {}

// list reads commands that follow each other.
func (r *reading) list(stmts []*syntax.Stmt) result {
	out := succeeds
	for i, s := range stmts {
		r.isExempt = false
		out = r.statement(s)
		if r.errexit && !r.isExempt && out == fails {
			r.exits = true
		}
		if r.exits || r.breaks {
			return out
		}
		if rest := stmts[i+1:]; len(rest) > 0 && (r.mayExit || r.mayBreak || r.errexit && !r.isExempt && out == open) {
			return r.some(func(child *reading) { child.list(rest) }, nothing)
		}
	}
	return out
}

func (r *reading) statement(s *syntax.Stmt) result {
	if *r.commands++; *r.commands > maxCommands {
		r.exits = true
		return r.unknown("a script that is too long")
	}
	if s.Background || s.Coprocess || s.Disown {
		child := r.fork()
		child.command(s.Cmd)
		h := summarize(child.steps)
		if h.StopsAt == 0 && h.ends() {
			r.steps = append(r.steps, Step{Do: Unknown, Most: 1, MayStop: true, Text: child.steps[0].Text})
		}
		l := later{h, summarize(r.steps).Duration, ""}
		if !isSilent(s) {
			l.text = "a command in the background that has the hook's output"
		}
		r.later = append(r.later, l)
		return succeeds
	}
	out := r.command(s.Cmd)
	for _, to := range s.Redirs {
		isWrite := to.Op == syntax.RdrOut || to.Op == syntax.AppOut || to.Op == syntax.RdrAll || to.Op == syntax.AppAll
		name := r.parts(to.Word.Parts)
		if at, is := strings.CutPrefix(name, "/dev/tcp/"); is { // bash connects, and another command writes the request
			host, _, _ := strings.Cut(at, "/")
			isOwn := isLoopback(host) || strings.Contains(host, dynamic)
			r.add(Step{Do: Unknown, MayStop: isOwn, Text: strings.ReplaceAll(name, dynamic, "…")})
			out = open
		}
		if isWrite && !strings.HasPrefix(name, "/dev/") && !strings.HasPrefix(name, "/proc/1/fd/") {
			r.add(Step{Do: Runs, Text: "> " + name})
			if out == succeeds { // if it can write there
				out = open
			}
		}
	}
	if s.Negated {
		r.isExempt = true
		out = out.not()
	}
	return out
}

// isSilent reports whether a command has neither of the outputs of its shell.
func isSilent(s *syntax.Stmt) bool {
	isOut, isErr := false, false
	for _, to := range s.Redirs {
		switch n := to.N; {
		case to.Op == syntax.RdrAll || to.Op == syntax.AppAll:
			return true
		case to.Op == syntax.DplOut && n != nil && n.Value == "2" && to.Word.Lit() == "1":
			isErr = isOut
		case to.Op != syntax.RdrOut && to.Op != syntax.AppOut && to.Op != syntax.RdrClob:
		case n == nil || n.Value == "1":
			isOut = true
		case n.Value == "2":
			isErr = true
		}
	}
	return isOut && isErr
}

// hold adds what the runtime may wait for when the hook's own process has ended: containerd awaits the end of its
// output, which commands in the background have too, and CRI-O does not.
func (r *reading) hold() {
	for _, l := range r.later {
		s := Step{Do: Unknown, MayStop: l.ends(), Text: l.text}
		isEndless := !l.IsKnown && l.Most == 0
		if !isEndless {
			s.Most = l.from + max(l.Duration, l.Most) - summarize(r.steps).Duration
		}
		if l.text != "" && (isEndless || s.Most > 0) {
			r.add(s)
		}
	}
	r.later = nil
}

// wait waits for the commands in the background.
func (r *reading) wait() result {
	for _, l := range r.later {
		left := max(0, l.from+l.Duration-summarize(r.steps).Duration)
		switch {
		case !l.IsKnown || l.Stops:
			r.add(Step{Do: Unknown, For: left, MayStop: l.ends(), Text: "wait"})
		case left > 0:
			r.add(Step{Do: Sleep, For: left})
		}
	}
	r.later = nil
	return open
}

func (r *reading) command(cmd syntax.Command) result {
	switch c := cmd.(type) {
	case nil:
		return succeeds
	case *syntax.CallExpr:
		return r.simple(c)
	case *syntax.Block:
		return r.list(c.Stmts)
	case *syntax.Subshell:
		return r.inside(func(child *reading) result { return child.list(c.Stmts) })
	case *syntax.BinaryCmd:
		return r.binary(c)
	case *syntax.IfClause:
		return r.branch(c)
	case *syntax.WhileClause:
		return r.loop(func() result {
			out := r.decision(c.Cond)
			if c.Until {
				out = out.not()
			}
			return out
		}, func() {}, c.Do)
	case *syntax.ForClause:
		return r.each(c)
	case *syntax.FuncDecl:
		r.funcs[c.Name.Value] = c.Body
		return succeeds
	case *syntax.ArithmCmd:
		return r.condition(c.X)
	case *syntax.TimeClause:
		if c.Stmt != nil {
			return r.statement(c.Stmt)
		}
		return succeeds
	case *syntax.DeclClause:
		for _, a := range c.Args {
			r.assign(a)
		}
		return succeeds
	case *syntax.TestClause:
		return open
	case *syntax.CaseClause:
		ways := []func(*reading){nothing}
		for _, item := range c.Items {
			ways = append(ways, func(child *reading) { child.list(item.Stmts) })
		}
		return r.some(ways...)
	}
	return r.unknown("a command of another shell")
}

// inside reads commands of which an exit ends only themselves.
func (r *reading) inside(read func(*reading) result) result {
	child, before := r.fork(), summarize(r.steps).Duration
	out := read(child)
	r.add(child.steps...)
	for i := range child.later {
		child.later[i].from += before
	}
	r.later, r.awaitsSockets = append(r.later, child.later...), r.awaitsSockets || child.awaitsSockets
	r.traps = r.traps || child.traps
	return out
}

func parse(script string) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), "")
}

// script reads the script of a shell.
func (r *reading) script(text, shell string) result {
	if len(text) > maxScript {
		return r.unknown("a script that is too long")
	}
	file, err := parse(text)
	if err != nil {
		return r.fail("the shell refuses its script: " + strings.TrimPrefix(err.Error(), ":"))
	}
	if strings.Contains(text, "\r") {
		return r.doubtful(file.Stmts, "carriage returns, which the shell takes for parts of words")
	}
	if why := bashOnly(file); why != "" && slices.Contains(plainShells, shell) {
		return r.doubtful(file.Stmts, shell+" may not have bash's "+why)
	}
	return r.list(file.Stmts)
}
