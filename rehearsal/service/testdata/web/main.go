// Web is the program of an image: a server that answers 200 if it runs as the image and the manifest require, and 500
// with what differs. Its preStop hook is "web hook"; without the hook it does not exit at SIGQUIT.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// marker is written by the hook.
const marker = "/run/hooked"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "hook" {
		if err := os.WriteFile(marker, nil, 0o644); err != nil {
			panic(err)
		}
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGQUIT)
	server := &http.Server{Addr: "127.0.0.1:" + os.Args[2], ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		time.Sleep(100 * time.Millisecond)
		_, _ = fmt.Fprintln(w, "as required")
	})}
	go func() {
		if err := server.ListenAndServe(); err != http.ErrServerClosed {
			panic(err)
		}
	}()
	<-stop
	if _, err := os.Stat(marker); err != nil {
		select {} // until SIGKILL
	}
	_ = server.Shutdown(context.Background())
}

func check() error {
	if !slices.Equal(os.Args, []string{"web", "--port", os.Args[2], "from the manifest"}) {
		return fmt.Errorf("arguments %q", os.Args)
	}
	for name, want := range map[string]string{"PORT": os.Args[2], "LISTEN": ":" + os.Args[2], "GREETING": "from the image", "MANIFEST": "yes", "HOME": "/root", "GOPATH": ""} {
		if got := os.Getenv(name); got != want {
			return fmt.Errorf("%s=%q, not %q", name, got, want)
		}
	}
	if dir, err := os.Getwd(); err != nil || dir != "/work" {
		return fmt.Errorf("working folder %s, %v", dir, err)
	}
	if _, err := os.Stat("/gone"); err == nil {
		return fmt.Errorf("/gone is still there")
	}
	if self, err := os.Readlink("/proc/self/exe"); err != nil || self != "/app/web" {
		return fmt.Errorf("/proc/self/exe is %s, %v", self, err)
	}
	if os.Getuid() != 0 || os.Getpid() != 1 {
		return fmt.Errorf("user %d, process %d", os.Getuid(), os.Getpid())
	}
	for _, file := range []string{"/dev/null", "/run/written", "/work/written"} {
		if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
			return err
		}
	}
	for _, file := range []string{"/etc/hosts", "/dev/urandom", "/sys/kernel"} {
		if _, err := os.Stat(file); err != nil {
			return err
		}
	}
	return nil
}
