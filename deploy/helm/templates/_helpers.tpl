{{/* What everything of a release is called. Selectors are built of it, so it must never change. */}}
{{- define "jobgroup.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "jobgroup.fullname" -}}
{{- $name := include "jobgroup.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "jobgroup.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "jobgroup.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- .Values.serviceAccount.name | required "serviceAccount.name: name the account to use, or let serviceAccount.create be true" }}
{{- end }}
{{- end }}

{{- define "jobgroup.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- define "jobgroup.selector" -}}
app.kubernetes.io/name: {{ include "jobgroup.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "jobgroup.labels" -}}
{{ include "jobgroup.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* How every object of the release begins: (list $ "suffix of its name"). */}}
{{- define "jobgroup.metadata" -}}
{{- $root := first . -}}
name: {{ include "jobgroup.fullname" $root }}{{ last . }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "jobgroup.labels" $root | nindent 2 }}
{{- end }}

{{/* The same for an object that belongs to no namespace. */}}
{{- define "jobgroup.clusterMetadata" -}}
{{- $root := first . -}}
name: {{ include "jobgroup.fullname" $root }}{{ last . }}
labels:
  {{- include "jobgroup.labels" $root | nindent 2 }}
{{- end }}

{{- define "jobgroup.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
