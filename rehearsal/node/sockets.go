package node

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Kernel states of a TCP socket, as /proc/net/tcp writes them.
const (
	stateEstablished = "01"
	stateListen      = "0A"
)

// socket is a line of /proc/net/tcp or tcp6.
type socket struct {
	port  int    // local
	state string // two hexadecimal digits
	inode string
}

// parseSockets parses /proc/net/tcp; an invalid line is an error.
func parseSockets(data []byte) ([]socket, error) {
	var out []socket
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Scan() // the heading
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			return nil, fmt.Errorf("socket table: line %q has fewer than 10 fields", lines.Text())
		}
		_, hex, _ := strings.Cut(f[1], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("socket table: local address %q: %w", f[1], err)
		}
		out = append(out, socket{int(port), f[3], f[9]})
	}
	return out, lines.Err()
}

func allSockets() ([]socket, error) {
	var out []socket
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) && file != "/proc/net/tcp" {
			continue // no IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("read the socket table: %w", err)
		}
		sockets, err := parseSockets(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, sockets...)
	}
	return out, nil
}

// Established counts the connections of each local TCP port: for a server's port, its clients.
func Established() (map[int]int, error) {
	sockets, err := allSockets()
	if err != nil {
		return nil, err
	}
	out := make(map[int]int)
	for _, s := range sockets {
		if s.state == stateEstablished {
			out[s.port]++
		}
	}
	return out, nil
}

// Listening counts the listening TCP sockets of the processes in p's group, as `netstat -plnt` shows them in a container.
func (p *Process) Listening() (int, error) {
	held, err := p.inodes()
	if err != nil {
		return 0, err
	}
	sockets, err := allSockets()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range sockets {
		if s.state == stateListen && held[s.inode] {
			n++
		}
	}
	return n, nil
}

// inodes are the group's open sockets.
func (p *Process) inodes() (map[string]bool, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool)
	for _, stat := range stats {
		data, err := os.ReadFile(stat)
		if err != nil || groupOf(data) != p.PID() {
			continue // it has ended, or belongs to another user
		}
		links, _ := filepath.Glob(filepath.Join(filepath.Dir(stat), "fd", "*"))
		for _, link := range links {
			target, err := os.Readlink(link)
			if err != nil {
				continue
			}
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				out[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	return out, nil
}

// groupOf parses the process group in /proc/PID/stat; 0 if it is invalid. The name before it, in parentheses, may contain
// anything.
func groupOf(stat []byte) int {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0
	}
	f := bytes.Fields(stat[i+1:]) // state, parent, group, …
	if len(f) < 3 {
		return 0
	}
	group, err := strconv.Atoi(string(f[2]))
	if err != nil {
		return 0
	}
	return group
}
