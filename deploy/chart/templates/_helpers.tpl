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

{{- define "watchfan.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
# Only the group can read the certificate's key.
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "watchfan.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* The flags of the ports, of the configuration file and of who clients are. Fall-back replicas have them too. */}}
{{- define "watchfan.serving" -}}
# A client of the plaintext port would act with watchfan's own rights.
- --insecure-port=0
- --admin-port=8002
- "--admin-bind-address={{ .Values.bindAddress }}"
- --config=/etc/watchfan/config/config.yaml
- --secure-port=8443
- "--bind-address={{ .Values.bindAddress }}"
- --tls-cert-file=/etc/watchfan/tls/tls.crt
- --tls-private-key-file=/etc/watchfan/tls/tls.key
{{- if .Values.clientCertificates.enabled }}
- --client-ca-file=/etc/watchfan/client-ca/{{ .Values.clientCertificates.key }}
{{- end }}
{{- with .Values.frontProxies }}
{{- if .enabled }}
- --requestheader-client-ca-file=/etc/watchfan/front-proxy-ca/{{ .key }}
{{- range $flag, $values := dict "allowed-names" .allowedNames "username-headers" .usernameHeaders "uid-headers" .uidHeaders "group-headers" .groupHeaders "extra-headers-prefix" .extraHeadersPrefix }}
{{- with $values }}
- {{ printf "--requestheader-%s=%s" $flag (join "," .) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
- --anonymous-auth={{ .Values.anonymousAuth }}
{{- end }}

{{/* The files that these flags name. */}}
{{- define "watchfan.mounts" -}}
- name: tls
  mountPath: /etc/watchfan/tls
  readOnly: true
- name: config
  mountPath: /etc/watchfan/config
  readOnly: true
{{- if .Values.clientCertificates.enabled }}
- name: client-ca
  mountPath: /etc/watchfan/client-ca
  readOnly: true
{{- end }}
{{- if .Values.frontProxies.enabled }}
- name: front-proxy-ca
  mountPath: /etc/watchfan/front-proxy-ca
  readOnly: true
{{- end }}
{{- end }}

{{- define "watchfan.volumes" -}}
- name: tls
  secret:
    secretName: {{ include "watchfan.tlsSecret" . }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
- name: config
  configMap:
    name: {{ include "watchfan.name" . }}
{{- if .Values.clientCertificates.enabled }}
- name: client-ca
  configMap:
    name: {{ required "clientCertificates.enabled is true: give clientCertificates.configMap" .Values.clientCertificates.configMap }}
{{- end }}
{{- if .Values.frontProxies.enabled }}
- name: front-proxy-ca
  configMap:
    name: {{ required "frontProxies.enabled is true: give frontProxies.configMap" .Values.frontProxies.configMap }}
{{- end }}
{{- end }}

{{/* A StatefulSet's name has 52 characters at most, because a label of its pods has it and a hash. */}}
{{- define "watchfan.fallback" -}}
{{ include "watchfan.name" . | trunc 43 | trimSuffix "-" }}-fallback
{{- end }}

{{/* The labels that select fall-back replicas. The Service must not. */}}
{{- define "watchfan.fallbackSelector" -}}
app.kubernetes.io/name: watchfan-fallback
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "watchfan.fallbackLabels" -}}
{{ include "watchfan.labels" . | replace "app.kubernetes.io/name: watchfan\n" "app.kubernetes.io/name: watchfan-fallback\n" }}
{{- end }}

{{/* The rules for users of client certificates and front proxies, as part of a ClusterRole. */}}
{{- define "watchfan.impersonation" }}
  {{- if or .Values.clientCertificates.enabled .Values.frontProxies.enabled }}
  # The rights of users of client certificates and front proxies: watchfan cannot ask in their name,
  # so it asks about them.
  - apiGroups: [authorization.k8s.io]
    resources: [subjectaccessreviews]
    verbs: [create]
  # Their requests that pass through go in the user's name.
  {{- include "watchfan.impersonate" . | trim | nindent 2 }}
  {{- end }}
{{- end }}
