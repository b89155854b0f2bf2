{{/* The selector of one component's pods: (list . "webhook"). */}}
{{- define "lastcall.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: lastcall
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* The labels of everything of one component. */}}
{{- define "lastcall.labels" -}}
{{- $root := index . 0 -}}
{{ include "lastcall.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | default $root.Chart.Version | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image's reference: (list . "sidecar.image" .Values.sidecar.image "lastcall"). */}}
{{- define "lastcall.image" -}}
{{- $root := index . 0 -}}
{{- $value := index . 1 -}}
{{- $image := index . 2 -}}
{{- $repository := $image.repository -}}
{{- if not $repository -}}
{{- if not $root.Values.registry -}}
{{- fail (printf "no image: set registry to where your nodes pull lastcall's images from, for example --set registry=registry.example.com/team after make push REGISTRY=registry.example.com/team, or set %s.repository (docs/install.md)" $value) -}}
{{- end -}}
{{- $repository = printf "%s/%s" $root.Values.registry (index . 3) -}}
{{- end -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else if $image.tag -}}
{{ $repository }}:{{ $image.tag }}
{{- else if $root.Chart.AppVersion -}}
{{ $repository }}:{{ $root.Chart.AppVersion }}
{{- else -}}
{{- fail (printf "no tag for the image %s: this chart was not packaged by make chart, which sets the version of the images; install dist/lastcall.tgz, or set %s.tag or %s.digest" $repository $value $value) -}}
{{- end -}}
{{- end }}

{{/* The seconds of a duration such as 1m30s; the schema checks its form. */}}
{{- define "lastcall.seconds" -}}
{{- $hours := regexFind "[0-9]+h" . | trimSuffix "h" | default "0" | int -}}
{{- $minutes := regexFind "[0-9]+m" . | trimSuffix "m" | default "0" | int -}}
{{- $seconds := regexFind "[0-9]+s" . | trimSuffix "s" | default "0" | int -}}
{{- add (mul 3600 $hours) (mul 60 $minutes) $seconds -}}
{{- end }}

{{/* Pod security "restricted" requires all of this. */}}
{{- define "lastcall.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "lastcall.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Placement of pods: (list . "webhook" .Values.webhook). */}}
{{- define "lastcall.scheduling" -}}
{{- $its := index . 2 -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "lastcall.selector" . | nindent 8 }}
{{- with $its.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $its.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $its.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $its.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Metadata of a component's pods: (list . "webhook" .Values.webhook PORT). */}}
{{- define "lastcall.podMetadata" -}}
{{- $its := index . 2 -}}
labels:
  {{- include "lastcall.labels" . | nindent 2 }}
  {{- with $its.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ index . 3 | quote }}
  prometheus.io/path: /metrics
  {{- with $its.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
