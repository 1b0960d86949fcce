{{/* Labels of everything the chart makes. */}}
{{- define "topicbinding.labels" -}}
app.kubernetes.io/name: topicbinding
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .component }}
topicbinding.dev/component: {{ .component }}
{{- end }}

{{/* What a Deployment finds its pods by: never changes. */}}
{{- define "topicbinding.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
topicbinding.dev/component: {{ .component }}
{{- end }}

{{/* A role given cluster-wide, or in each of the served namespaces. */}}
{{- define "topicbinding.bind" -}}
{{- $root := .root }}
{{- $name := .name }}
{{- if $root.Values.watchNamespaces }}
{{- range $root.Values.watchNamespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ . }}
  labels: {{- include "topicbinding.labels" (dict "root" $root "component" $.component) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}]
{{- end }}
{{- else }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{- include "topicbinding.labels" (dict "root" $root "component" .component) | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}]
{{- end }}
{{- end }}
