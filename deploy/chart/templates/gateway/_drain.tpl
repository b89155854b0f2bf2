{{/* Seconds for which a load balancer may still send new connections: lastcall-gateway --help. */}}
{{- define "lastcall.gateway.minimum" -}}
{{- if .minDrainDuration -}}
{{ include "lastcall.seconds" .minDrainDuration }}
{{- else -}}
{{- if eq .loadBalancer "alb" -}}
{{ include "lastcall.seconds" .deregistrationDelay | add 10 }}
{{- else -}}
{{ get (dict "nlb" "190" "gke" "6" "cloudflare" "60" "adaptive" "5" "none" "0") .loadBalancer }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Time limit of the drain in seconds. */}}
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
{{- include "lastcall.gateway.failure" (list $timeout .) -}}
{{ $timeout }}
{{- else -}}
{{- include "lastcall.gateway.failure" (list (add $minimum 60) .) -}}
{{ add $minimum 60 }}
{{- end -}}
{{- end }}

{{/* The delay must be shorter than the drain. */}}
{{- define "lastcall.gateway.failure" -}}
{{- with (index . 1).healthCheckFailureDelay -}}
{{- if gt (include "lastcall.seconds" . | int) (index $ 0 | int) -}}
{{- fail (printf "gateway.healthCheckFailureDelay (%s) must not be longer than the %vs of gateway.drainTimeout" . (index $ 0)) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Not empty when there is TLS: always with Ingresses, which may name a Secret at any time. */}}
{{- define "lastcall.gateway.tls" -}}
{{- if or (not .backend) .defaultTLSSecret }}yes{{ end -}}
{{- end }}
