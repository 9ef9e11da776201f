{{/*
The rules by which requests of certificates' and front proxies' users pass through in the user's name.

From 1.36 on (KEP-5284) they say who, and apart from that what may be done in that name: a node by its
name alone, and a user by name, groups, uid and extra. Before, and with impersonate.unconstrained, the
verb impersonate lets watchfan do anything in that name. RBAC cannot say "any node" there: any node is
any user, in the groups that are named.
*/}}
{{- define "watchfan.impersonate" -}}
{{- $i := .Values.clientCertificates.impersonate }}
{{- $users := list }}
{{- $nodes := $i.nodes }}
{{- range $i.users }}
  {{- if hasPrefix "system:node:" . }}{{ $nodes = append $nodes (trimPrefix "system:node:" .) }}{{ else }}{{ $users = append $users . }}{{ end }}
{{- end }}
{{- if and (has "*" $users) (or (has "*" $i.groups) (has "system:nodes" $i.groups)) }}{{ $nodes = list "*" }}{{ end }}
{{- $groups := $i.groups }}
{{- $extra := list "userextras/authentication.kubernetes.io/credential-id" }}
{{- if .Values.frontProxies.enabled }}
  {{- range .Values.frontProxies.extraKeys }}{{ $extra = append $extra (printf "userextras/%s" .) }}{{ end }}
{{- end }}
{{- $constrained := and (semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version) (not $i.unconstrained) }}
{{- $verb := "impersonate" }}
{{- $core := "" }}
{{- if $constrained }}
  {{- $verb = "impersonate:user-info" }}
  {{- $core = "authentication.k8s.io" }}
  {{- $groups = without $groups "system:nodes" }}
  {{- range $extra }}
    {{- if and $users (not (regexMatch "^userextras/[^/]+/." .)) }}
      {{- fail (printf "frontProxies.extraKeys: kube-apiserver 1.36 and newer let watchfan send no key without a domain, as %s: name it example.com/KEY, or set clientCertificates.impersonate.unconstrained" (trimPrefix "userextras/" .)) }}
    {{- end }}
  {{- end }}
{{- else if $nodes }}
  {{- range $nodes }}{{ $users = append $users (eq . "*" | ternary . (printf "system:node:%s" .)) }}{{ end }}
  {{- $groups = concat $groups (list "system:nodes" "system:authenticated") | uniq }}
{{- end }}
{{- if and $constrained $nodes }}
# Nodes, and below what a kubelet does.
- apiGroups: [authentication.k8s.io]
  resources: [nodes]
  verbs: ["impersonate:arbitrary-node"]
  {{- if not (has "*" $nodes) }}
  resourceNames: {{ toJson $nodes }}
  {{- end }}
{{- range $rule := .Files.Get "files/kubelet-rules.yaml" | fromYamlArray }}
  {{- $verbs := list }}
  {{- range $rule.verbs }}{{ $verbs = append $verbs (printf "impersonate-on:arbitrary-node:%s" .) }}{{ end }}
- {{ set $rule "verbs" $verbs | toJson }}
{{- end }}
{{- end }}
{{- if $users }}
# Users by name, with their groups, uid and extra. A certificate gives its hash as extra, and perhaps a
# uid.
{{- range $resource, $names := dict "users" $users "groups" $groups }}
{{- if $names }}
- apiGroups: [{{ $core | quote }}]
  resources: [{{ $resource }}]
  verbs: [{{ $verb | quote }}]
  {{- if not (has "*" $names) }}
  resourceNames: {{ toJson $names }}
  {{- end }}
{{- end }}
{{- end }}
- apiGroups: [authentication.k8s.io]
  resources: {{ prepend $extra "uids" | toJson }}
  verbs: [{{ $verb | quote }}]
{{- if $constrained }}
  {{- $verbs := list }}
  {{- range $i.verbs }}{{ $verbs = append $verbs (printf "impersonate-on:user-info:%s" .) }}{{ end }}
# What may be done in their names, as far as they may do it themselves.
- apiGroups: ["*"]
  resources: ["*"]
  verbs: {{ toJson $verbs }}
- nonResourceURLs: ["*"]
  verbs: ["impersonate-on:user-info:get"]
{{- end }}
{{- end }}
{{- end }}
