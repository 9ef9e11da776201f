{{/* The name of all objects of the release. */}}
{{- define "watchfan.name" -}}
{{- if contains "watchfan" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-watchfan" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The labels that select pods. They must never change. */}}
{{- define "watchfan.selector" -}}
app.kubernetes.io/name: watchfan
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "watchfan.labels" -}}
{{ include "watchfan.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "watchfan.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "watchfan.name" .) }}{{ else }}{{ required "serviceAccount.create is false: give serviceAccount.name" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{/* ClusterRoles have no namespace, so the name has the release's. */}}
{{- define "watchfan.clusterRole" -}}
{{ printf "%s:%s" .Release.Namespace (include "watchfan.name" .) }}
{{- end }}

{{- define "watchfan.tlsSecret" -}}
{{ .Values.tls.secretName | default (printf "%s-tls" (include "watchfan.name" .)) }}
{{- end }}

{{/* Not empty if pods fill their caches from each other. */}}
{{- define "watchfan.seeds" -}}
{{- if and .Values.seeds.enabled (or .Values.autoscaling.enabled (gt (int .Values.replicas) 1)) }}true{{ end }}
{{- end }}

{{/* The headless Service through which the pods find each other. */}}
{{- define "watchfan.replicas" -}}
{{ include "watchfan.name" . }}-replicas
{{- end }}

{{- define "watchfan.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}
