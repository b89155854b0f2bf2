package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/kube/notice"
	"github.com/lastcall-dev/lastcall/kube/observe"
)

// checkDeadlines checks the flags about deadlines.
func (f *flags) checkDeadlines() error {
	at, err := url.Parse(f.cloudURL)
	switch {
	case f.shutdownGrace < 0:
		return fmt.Errorf("--shutdown-grace-period is %v: must not be negative", f.shutdownGrace)
	case f.cloud != "" && !slices.Contains(notice.Clouds, f.cloud):
		return fmt.Errorf("--cloud %q: must be one of %s", f.cloud, strings.Join(notice.Clouds, ", "))
	case !f.deadlines && (f.cloud != "" || f.shutdownGrace > 0):
		return errors.New("--cloud and --shutdown-grace-period need --deadlines")
	case f.cloudURL != "" && f.cloud == "":
		return errors.New("--cloud-url needs --cloud")
	case f.cloudURL != "" && (err != nil || at.Scheme != "http" || at.Host == ""):
		return fmt.Errorf("--cloud-url %q: must be a URL such as http://169.254.169.254", f.cloudURL)
	}
	return nil
}

// followCloud passes the notices of the cloud on, until ctx ends. The metadata service is reached from the node's network:
// AWS answers no request that has crossed a router, such as a pod's.
func (f *flags) followCloud(ctx context.Context, o *observe.Observer, log *slog.Logger) {
	service := &notice.Service{
		Cloud: f.cloud, Base: strings.TrimSuffix(f.cloudURL, "/"), Log: log,
		Client: &http.Transport{DialContext: observe.DialNode(f.proc), MaxResponseHeaderBytes: 64 << 10},
	}
	err := service.Follow(ctx, func(n notice.Notice) {
		switch {
		case n.Kind == "":
			log.Info("the cloud has withdrawn its notice")
		case n.At.IsZero():
			log.Warn("the cloud may end this machine", "kind", n.Kind)
		default:
			log.Warn("the cloud ends this machine", "kind", n.Kind, "ends_in", time.Until(n.At).Round(time.Second))
		}
		o.Notice(ctx, observe.Deadline{At: n.At, From: n.Kind})
	})
	if err != nil {
		log.Error("cannot follow the notices of the cloud", "error", err)
	}
}
