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
{{- with .Values.image }}
{{- with .registry }}{{ . }}/{{ end }}
{{- .repository }}
{{- if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "jobgroup.selector" -}}
app.kubernetes.io/name: {{ include "jobgroup.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "jobgroup.labels" -}}
{{ include "jobgroup.labelsWith" (list . dict) }}
{{- end }}

{{/* The labels of an object that has labels of its own, which replace those of commonLabels: (list $ labels). */}}
{{- define "jobgroup.labelsWith" -}}
{{- $root := first . -}}
{{- $chart := include "jobgroup.selector" $root | fromYaml -}}
{{- $_ := set $chart "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $chart "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $chart "helm.sh/chart" (printf "%s-%s" $root.Chart.Name ($root.Chart.Version | replace "+" "_")) -}}
{{- mergeOverwrite dict $root.Values.commonLabels (last .) $chart | toYaml }}
{{- end }}

{{/* The metadata of an object in the namespace of the release: (list $ "suffix of its name" labels). */}}
{{- define "jobgroup.metadata" -}}
{{- $root := first . -}}
{{- $labels := dict -}}
{{- if gt (len .) 2 }}{{ $labels = last . }}{{ end -}}
name: {{ print (include "jobgroup.fullname" $root) (index . 1) | quote }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "jobgroup.labelsWith" (list $root $labels) | nindent 2 }}
{{- end }}

{{/* The metadata of a cluster-scoped object. */}}
{{- define "jobgroup.clusterMetadata" -}}
{{- $root := first . -}}
name: {{ print (include "jobgroup.fullname" $root) (last .) | quote }}
labels:
  {{- include "jobgroup.labels" $root | nindent 2 }}
{{- end }}

{{/* A security context; without the ids on OpenShift, which assigns them: (list $ context). */}}
{{- define "jobgroup.securityContext" -}}
{{- $context := last . -}}
{{- if (first .).Values.openshift }}{{ $context = omit $context "runAsUser" "runAsGroup" "fsGroup" }}{{ end -}}
{{ toYaml $context }}
{{- end }}
