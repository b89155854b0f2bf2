{{/* Seconds for which a load balancer may still send new connections: lastcallctl gateway --help. */}}
{{- define "lastcall.gateway.minimum" -}}
{{- if .minDrainDuration -}}
{{ include "lastcall.seconds" .minDrainDuration }}
{{- else -}}
{{ get (dict "nlb" "190" "alb" "310" "gke" "6" "cloudflare" "60" "adaptive" "5" "none" "0") .loadBalancer }}
{{- end -}}
{{- end }}

{{/* Seconds that the end may take in all. */}}
{{- define "lastcall.gateway.timeout" -}}
{{- $minimum := include "lastcall.gateway.minimum" . | int -}}
{{- if .drainTimeout -}}
{{- $timeout := include "lastcall.seconds" .drainTimeout | int -}}
{{- if lt $timeout $minimum -}}
{{- if .minDrainDuration -}}
{{- fail (printf "gateway.drainTimeout (%s) must not be shorter than gateway.minDrainDuration (%s)" .drainTimeout .minDrainDuration) -}}
{{- else -}}
{{- fail (printf "gateway.drainTimeout (%s) must not be shorter than the %ds that gateway.loadBalancer %s needs; make it longer, or set gateway.minDrainDuration" .drainTimeout $minimum .loadBalancer) -}}
{{- end -}}
{{- end -}}
{{ $timeout }}
{{- else -}}
{{ add $minimum 60 }}
{{- end -}}
{{- end }}
