// Package ingress brings a gateway what it goes by from a Kubernetes cluster: routes from
// Ingresses of its class, or from one Service alone; endpoints from EndpointSlices;
// certificates from Secrets.
//
// Promise: a change is in the routing within the event that brings it, nothing is put off.
// What has been learnt stays in force when the API server cannot be reached, and nobody is
// served before everything is known.
//
// # Which endpoints get requests
//
//  1. those that are ready and not terminating;
//  2. when there is none, those that are terminating and still serving (KEP-1669): what
//     nobody has taken over yet is better answered than refused.
//
// What is not said is taken as the API says: ready unless ready is false, serving unless
// serving is false, not terminating unless terminating is true. Of a dual-stack Service it is
// the first of spec.ipFamilies, and the other family only when that one has none of the
// kind.
package ingress
