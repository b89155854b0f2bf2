package process

import (
	"os"
	"strconv"
)

// Image is the program that a process runs.
type Image struct {
	program string // file and arguments
	layout  string // where they are in memory: the kernel chooses other addresses at each execve(2)
}

// ImageOf reads /proc/PID. It is empty when there is no such process, or it may not be read.
func ImageOf(pid int) Image {
	const startCode, startStack, argStart = 26 - 3, 28 - 3, 48 - 3 // proc(5) counts from 1, Stat from the third field
	dir, stat := "/proc/"+strconv.Itoa(pid), Stat(pid)
	file, err := os.Readlink(dir + "/exe")
	if err != nil || len(stat) <= argStart {
		return Image{}
	}
	args, _ := os.ReadFile(dir + "/cmdline")
	return Image{
		program: file + "\x00" + string(args),
		layout:  stat[startCode] + " " + stat[startStack] + " " + stat[argStart],
	}
}

// Images are those of processes.
func Images(pids []int) map[int]Image {
	out := make(map[int]Image, len(pids))
	for _, pid := range pids {
		out[pid] = ImageOf(pid)
	}
	return out
}

// HasReloaded reports whether a process has run the same program again.
func (i Image) HasReloaded(now Image) bool {
	return i.program != "" && i.program == now.program && i.layout != now.layout
}
