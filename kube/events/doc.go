// Package events makes a Kubernetes Event of every termination that lastcall reports, so that
// kubectl get events and kubectl describe pod say why a pod took 28 s.
//
// The report is in the termination message of the container in which lastcall ran: the kubelet
// writes it to the pod's status. A Controller watches the pods with the label
// lastcall.dev/injected: "true" (the API server does the choosing) and makes an Event of each report
// that any of their containers has left.
//
// It promises: one Event a termination, from any number of replicas without a leader, and none
// again after a restart of the controller. The Event's name is made of the pod's UID, the container and its
// restart count, so that the second Create finds it there; and what has ended longer ago than an API
// server keeps the young of its Events (Fresh) is not told any more. A pod that is deleted
// with its last status update gets its Event from the object that the DELETED watch event brings.
//
// # Why core/v1
//
// Both APIs store the same object. events.k8s.io/v1 knows no lastTimestamp, by which people sort
// (kubectl get events --sort-by=.lastTimestamp) and which exporters read; core/v1 takes it, and is
// what kubectl describe looks for.
package events
