{{/* What the gateway reads in the namespaces of its backends. With a single backend, limited to its name where RBAC allows it. */}}
{{- define "lastcall.gateway.rules" -}}
{{- $backend := regexSplit "[/:]" .backend -1 -}}
# Where requests go.
- apiGroups: [""]
  resources: [services]
  {{- if .backend }}
  resourceNames: [{{ index $backend 1 }}]
  {{- end }}
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{- if not .backend }}
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [list, watch]
{{- end }}
{{- if .publishAddress }}
- apiGroups: [networking.k8s.io]
  resources: [ingresses/status]
  verbs: [patch]
{{- end }}
{{- if include "lastcall.gateway.tls" . }}
# Certificates.
- apiGroups: [""]
  resources: [secrets]
  {{- if .backend }}
  resourceNames: [{{ splitList "/" .defaultTLSSecret | last }}]
  {{- end }}
  verbs: [list, watch]
{{- end }}
{{- end }}
