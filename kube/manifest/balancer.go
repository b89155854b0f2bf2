package manifest

import (
	"cmp"
	"regexp"
	"strings"
	"time"
)

// Balancer is a load balancer whose targets are the addresses of pods, or the nodes of a Service's pods (Local).
type Balancer struct {
	*Object // that makes it so: a Service, an Ingress, a TargetGroupBinding or a route of a Gateway

	Name     string
	Field    string        // that selects it
	Value    string        // of the field; of a route's parentRefs the class of the Gateway
	Notices  time.Duration // how long it sends new connections to a pod that is being deleted
	Services []string      // those to whose pods it sends requests, in the object's namespace
}

// balancers are recognised by the values of an annotation or field. The times are those of docs/load-balancers.md.
var balancers = []struct {
	name    string
	notices time.Duration
	field   string
	value   *regexp.Regexp
}{
	{"an NLB", 190 * time.Second, annotationNLB + "nlb-target-type", regexp.MustCompile(`^ip$`)},
	{"an NLB", 190 * time.Second, annotationNLB + "type", regexp.MustCompile(`^nlb-ip$`)},
	{"an ALB", 15 * time.Second, "alb.ingress.kubernetes.io/target-type", regexp.MustCompile(`^ip$`)},
	{"an AWS target group", 15 * time.Second, fieldTarget, regexp.MustCompile(`^ip$`)},
	{"Azure's Application Gateway", 90 * time.Second, annotationClass, azureClass},
	{"Azure's Application Gateway", 90 * time.Second, fieldClass, azureClass},
	{"GKE's load balancer", 15 * time.Second, "cloud.google.com/neg",
		regexp.MustCompile(`"ingress"\s*:\s*true|"exposed_ports"`)},
	{"GKE's load balancer", 15 * time.Second, annotationClass, regexp.MustCompile(`^gce-internal$`)},
	{"GKE's load balancer", 15 * time.Second, fieldParents, regexp.MustCompile(`^gke-`)},
	// It removes a node after its last pod has ended and the node's health check has failed, on GKE twice in 3 s. Until
	// then the node sends new connections only to that pod, if it is terminating and still ready (KEP-1669).
	{"Local", 6 * time.Second, fieldPolicy, regexp.MustCompile(`^Local$`)},
}

const (
	annotationNLB   = "service.beta.kubernetes.io/aws-load-balancer-"
	annotationClass = "kubernetes.io/ingress.class"
	fieldClass      = "spec.ingressClassName"
	fieldParents    = "spec.parentRefs"
	fieldTarget     = "spec.targetType"
	fieldPolicy     = "spec.externalTrafficPolicy"
	gatewayGroup    = "gateway.networking.k8s.io"
)

var azureClass = regexp.MustCompile(`^azure[/-]application-gateway$`)

// Balancers are the load balancers of the objects.
func Balancers(objects []*Object) (found []Balancer) {
	classes := map[named]string{} // of Gateways
	for _, o := range objects {
		if t := new(traffic); o.Is(gatewayGroup, "Gateway") && o.Decode(t) == nil {
			classes[named{o.Namespace, o.Name}] = t.Spec.GatewayClassName
		}
	}
	for _, o := range objects {
		isService, isIngress := o.Is("", "Service"), o.Is("networking.k8s.io", "Ingress")
		isRoute := o.Group() == gatewayGroup && strings.HasSuffix(o.Kind, "Route")
		var t traffic
		isBinding := o.Is("elbv2.k8s.aws", "TargetGroupBinding") || o.Is("eks.amazonaws.com", "TargetGroupBinding")
		if !isService && !isIngress && !isRoute && !isBinding || o.Decode(&t) != nil {
			continue
		}
		fields := map[string]string{fieldClass: t.Spec.IngressClassName, fieldPolicy: t.Spec.Policy,
			fieldTarget: t.Spec.TargetType}
		for _, p := range t.Spec.ParentRefs {
			class := classes[named{cmp.Or(p.Namespace, o.Namespace), p.Name}]
			fields[fieldParents] = cmp.Or(class, fields[fieldParents])
		}
		for _, b := range balancers {
			value, isField := fields[b.field]
			if !isField {
				value, b.field = o.Annotations[b.field], "metadata.annotations["+b.field+"]"
			}
			if !b.value.MatchString(value) || b.name == "an NLB" && t.Spec.Type != "LoadBalancer" {
				continue
			}
			services := []string{o.Name}
			if !isService {
				services = t.services()
			}
			found = append(found, Balancer{o, b.name, b.field, value, b.notices, services})
			break
		}
	}
	return found
}

// traffic has the fields of these objects that select a load balancer.
type traffic struct {
	Spec struct {
		Type             string  `json:"type"`
		Policy           string  `json:"externalTrafficPolicy"`
		IngressClassName string  `json:"ingressClassName"`
		GatewayClassName string  `json:"gatewayClassName"`
		ParentRefs       []named `json:"parentRefs"`
		TargetType       string  `json:"targetType"`
		ServiceRef       named   `json:"serviceRef"`
		DefaultBackend   backend `json:"defaultBackend"`
		Rules            []struct {
			BackendRefs []named `json:"backendRefs"`
			HTTP        struct {
				Paths []struct {
					Backend backend `json:"backend"`
				} `json:"paths"`
			} `json:"http"`
		} `json:"rules"`
	} `json:"spec"`
}

type named struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

type backend struct {
	Service named `json:"service"`
}

// services are the Services that get the requests.
func (t *traffic) services() []string {
	names := []string{t.Spec.DefaultBackend.Service.Name, t.Spec.ServiceRef.Name}
	for _, rule := range t.Spec.Rules {
		for _, ref := range rule.BackendRefs {
			names = append(names, ref.Name)
		}
		for _, path := range rule.HTTP.Paths {
			names = append(names, path.Backend.Service.Name)
		}
	}
	return names
}
