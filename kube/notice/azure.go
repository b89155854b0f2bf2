package notice

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The kinds of Azure: azure- and the type of the event in lower case.
const (
	AzurePreempt   = "azure-preempt"   // a spot machine
	AzureTerminate = "azure-terminate" // a scale set deletes the machine
	AzureReboot    = "azure-reboot"
	AzureRedeploy  = "azure-redeploy" // it moves to another host and restarts
)

// askAzure reads the scheduled events that end this machine: Azure Metadata Service, "Scheduled Events for Linux VMs"
// (GET /metadata/scheduledevents with Metadata: true; all machines of a scale set get the events of all, with their names
// in Resources; NotBefore as RFC 1123, empty once the event has started). Freeze, a pause of seconds, ends nothing.
func (s *Service) askAzure(ctx context.Context) (Notice, error) {
	if s.name == "" {
		name, _, err := s.send(ctx, timeout, http.MethodGet, "/metadata/instance/compute/name?api-version=2021-02-01&format=text", "Metadata", "true")
		if err != nil {
			return Notice{}, err
		}
		s.name = strings.TrimSpace(name)
	}
	body, _, err := s.send(ctx, timeout, http.MethodGet, "/metadata/scheduledevents?api-version=2020-07-01", "Metadata", "true")
	if err != nil {
		return Notice{}, err
	}
	var document struct {
		Events []struct {
			EventType, EventStatus, NotBefore string
			Resources                         []string
		}
	}
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		return Notice{}, fmt.Errorf("read the scheduled events: %w", err)
	}
	var first Notice
	for _, e := range document.Events {
		kind := "azure-" + strings.ToLower(e.EventType)
		if !slices.Contains([]string{AzurePreempt, AzureTerminate, AzureReboot, AzureRedeploy}, kind) || !slices.Contains(e.Resources, s.name) {
			continue
		}
		at, err := time.Parse(time.RFC1123, e.NotBefore)
		if err != nil { // it has started
			at = time.Now()
		}
		if first.Kind == "" || at.Before(first.At) {
			first = Notice{Kind: kind, At: at}
		}
	}
	return first, nil
}
