// Package ingress configures a gateway from a Kubernetes cluster: routes from Ingresses of its class, or from a single
// Service; endpoints from EndpointSlices; certificates from Secrets.
//
// It promises that a change is in the routing when the event that brings it has been processed: nothing is delayed or
// batched. While the API server is unreachable, the last known state stays in force. The gateway serves no request before
// the initial sync is complete.
//
// # Which endpoints get requests
//
//  1. those that are ready and not terminating;
//  2. if there are none, those that are terminating and still serving (KEP-1669): a request that no new pod can take is
//     better served than refused.
//
// Missing conditions have the API's defaults: ready unless ready is false, serving unless serving is false, not
// terminating unless terminating is true. A dual-stack Service uses the first of spec.ipFamilies, and the other family only
// if the first has no such endpoint.
package ingress
