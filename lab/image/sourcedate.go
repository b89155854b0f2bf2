package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// epoch is the time of files without one.
var epoch = time.Unix(0, 0).UTC()

// sourceDate is the time of everything in the image: SOURCE_DATE_EPOCH (reproducible-builds.org, seconds since 1970),
// or the time of the commit that is checked out, or, in sources without a history, 1970.
func sourceDate() (time.Time, error) {
	text, isSet := os.LookupEnv("SOURCE_DATE_EPOCH")
	if !isSet || text == "" {
		out, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return epoch, nil
		}
		text = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q: must be seconds since 1970", text)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
