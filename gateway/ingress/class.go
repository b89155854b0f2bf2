package ingress

import (
	networkingv1 "k8s.io/api/networking/v1"
)

// annotationClass names the class in manifests from before spec.ingressClassName.
const annotationClass = "kubernetes.io/ingress.class"

// classes decides which Ingresses are ours.
type classes struct {
	class, controller string
	known             map[string]*networkingv1.IngressClass
}

func newClasses(o Options, all []*networkingv1.IngressClass) classes {
	c := classes{o.Class, o.Controller, make(map[string]*networkingv1.IngressClass, len(all))}
	for _, k := range all {
		c.known[k.Name] = k
	}
	return c
}

// ours reports whether in is for this gateway: by its class, by the older annotation, or, if it has neither, by the
// cluster's default class.
func (c classes) ours(in *networkingv1.Ingress) bool {
	if name := in.Spec.IngressClassName; name != nil {
		return c.isOurs(*name)
	}
	if name, ok := in.Annotations[annotationClass]; ok {
		return c.isOurs(name)
	}
	for name, k := range c.known {
		if k.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" && c.isOurs(name) {
			return true
		}
	}
	return false
}

// isOurs compares the controller of the class, or its name if no such object exists: a class with our name may belong to
// another controller.
func (c classes) isOurs(name string) bool {
	if k := c.known[name]; k != nil {
		return k.Spec.Controller == c.controller
	}
	return name == c.class
}
