{{/*
What everything of a release is called. Selectors are built of it, so it must never change.

Whatever a person names is quoted where it stands: a namespace may be called 2024.
*/}}
{{- define "jobgroup.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "jobgroup.fullname" -}}
{{- $name := include "jobgroup.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- $full = default $full .Values.fullnameOverride | replace "." "-" | trunc 50 | trimAll "-" }}
{{- if not (regexMatch "^[a-z]" $full) }}
{{- fail (printf "fullnameOverride: everything would be called %s, but the name of a Service begins with a letter; give another one" $full) }}
{{- end }}
{{- $full }}
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
app.kubernetes.io/name: {{ include "jobgroup.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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
name: {{ print (include "jobgroup.fullname" $root) (last .) | quote }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "jobgroup.labels" $root | nindent 2 }}
{{- end }}

{{/* The same for an object that belongs to no namespace. */}}
{{- define "jobgroup.clusterMetadata" -}}
{{- $root := first . -}}
name: {{ print (include "jobgroup.fullname" $root) (last .) | quote }}
labels:
  {{- include "jobgroup.labels" $root | nindent 2 }}
{{- end }}

{{- define "jobgroup.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
