// Package events creates a Kubernetes Event for every termination that lastcall reports, so that
// kubectl get events and kubectl describe pod show why a pod took 28 s.
//
// The report is in the termination message of the container in which lastcall ran: the kubelet writes it to the pod's
// status. A Controller watches the pods with the label lastcall.dev/injected: "true" (selected by the API server) and
// creates an Event for each report of any of their containers.
//
// It promises one Event for each termination, with any number of replicas without a leader, and no second one after a
// restart of the controller. The Event's name consists of the pod's UID, the container and its restart count, so that a
// second Create fails; terminations older than Fresh get no Event, because the API server may already have deleted it.
// A pod that is deleted with its last status update gets its Event from the object in the DELETED watch event.
//
// # Why core/v1
//
// Both APIs store the same object. events.k8s.io/v1 has no lastTimestamp, by which people sort (kubectl get events
// --sort-by=.lastTimestamp) and which exporters read; core/v1 has it, and kubectl describe reads core/v1.
package events
