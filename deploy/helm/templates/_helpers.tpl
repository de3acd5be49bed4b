{{/*
The names of a release. Selectors contain them, so they must never change.

Templates quote every name that a user chooses: a namespace may be called 2024.
*/}}
{{- define "jobgroup.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "jobgroup.fullname" -}}
{{- $name := include "jobgroup.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- $full = default $full .Values.fullnameOverride | replace "." "-" | trunc 50 | trimAll "-" }}
{{- if not (regexMatch "^[a-z]" $full) }}
{{- fail (printf "fullnameOverride: %s is not a valid Service name: it must begin with a letter; set another name" $full) }}
{{- end }}
{{- $full }}
{{- end }}

{{- define "jobgroup.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "jobgroup.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- .Values.serviceAccount.name | required "serviceAccount.name: set the name of an existing account, or set serviceAccount.create to true" }}
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

{{/* The metadata of an object in the namespace of the release: (list $ "suffix of its name"). */}}
{{- define "jobgroup.metadata" -}}
{{- $root := first . -}}
name: {{ print (include "jobgroup.fullname" $root) (last .) | quote }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "jobgroup.labels" $root | nindent 2 }}
{{- end }}

{{/* The metadata of a cluster-scoped object. */}}
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
