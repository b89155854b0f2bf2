package strategy

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/rehearsal/node"
)

// EnterCommand is the command of Programs.Self that calls node.Enter: ROOT SCRATCH DIR PROGRAM ARGUMENTS.
const EnterCommand = "enter-container"

// Container is an unpacked image in which the app runs.
type Container struct {
	Root string   // folder of its files
	Args []string // the program; {port} stands for the app's port
	Env  []string // NAME=value, with {port}, too
	Dir  string   // working folder
}

// searchPath is PATH in an image that sets none, as in container runtimes.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment is the app's; the last one of a name counts.
func (c *Container) environment(port int) []string {
	env := []string{searchPath, "HOME=/root"}
	own := strconv.Itoa(port)
	for _, v := range c.Env {
		env = append(env, strings.ReplaceAll(v, "{port}", own))
	}
	return append(env, "PORT="+own)
}

// command starts the app. In dir is the folder on which its files are mounted.
func (c *Container) command(self, dir string, port int) (node.Command, error) {
	scratch := filepath.Join(dir, "container")
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return node.Command{}, err
	}
	args := []string{self, EnterCommand, "--", c.Root, scratch, c.Dir}
	for _, a := range c.Args {
		args = append(args, strings.ReplaceAll(a, "{port}", strconv.Itoa(port)))
	}
	return node.Command{Args: args, Env: c.environment(port), Namespaces: true}, nil
}

// within is the command with its program in the container of a running app. A process with several threads, as each of
// Go's, cannot enter a user namespace: nsenter of util-linux can.
func (c *Container) within(command node.Command, app *node.Process, s *Service, port int) node.Command {
	command.Env = s.variables(c.environment(port), port)
	command.Args = append([]string{"nsenter", "--target", strconv.Itoa(app.PID()), "--user", "--preserve-credentials", "--mount", "--pid", "--root", "--wd", "--"}, command.Args...)
	return command
}
