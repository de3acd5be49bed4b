{{/* The parts of the pod spec that the operator and the uninstall hook share. */}}

{{- define "jobgroup.podSpec" -}}
serviceAccountName: {{ include "jobgroup.account" . | quote }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
# Otherwise a Service called "port" would set PORT.
enableServiceLinks: false
securityContext:
  {{- include "jobgroup.securityContext" (list . .Values.podSecurityContext) | nindent 2 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $secrets := include "jobgroup.secrets" . }}
{{- if or $secrets .Values.extraVolumes }}
volumes:
{{- if $secrets }}
- name: redis
  projected:
    defaultMode: 0440
    sources:
    {{- $secrets | nindent 4 }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "jobgroup.container" -}}
image: {{ include "jobgroup.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- include "jobgroup.securityContext" (list . .Values.securityContext) | nindent 2 }}
env:
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: LEASE_NAME
  value: {{ include "jobgroup.fullname" . | quote }}
{{- include "jobgroup.redisEnv" . | nindent 0 }}
- name: BULLMQ_PREFIX
  value: {{ .Values.redis.prefix | quote }}
- name: PORT
  value: {{ .Values.port | quote }}
- name: WORKERS
  value: {{ .Values.workers | quote }}
- name: API_QPS
  value: {{ .Values.api.qps | quote }}
- name: API_BURST
  value: {{ .Values.api.burst | quote }}
- name: POOL_MAX_REPLICAS
  value: {{ .Values.workerPools.maxReplicas | quote }}
- name: POOL_OPT_IN
  value: {{ .Values.workerPools.optIn | quote }}
{{- range $name, $seconds := dict "GROUP_TTL_SECONDS" .Values.retention.groupTtlSeconds "JOBGROUP_TTL_SECONDS" .Values.retention.jobGroupTtlSeconds }}
{{- if not (or (kindIs "invalid" $seconds) (eq (toString $seconds) "")) }}
- name: {{ $name }}
  value: {{ $seconds | int64 | quote }}
{{- end }}
{{- end }}
{{- if .Values.metrics.byNamespace }}
- name: METRICS_BY_NAMESPACE
  value: "true"
{{- end }}
- name: KOPF_RUN_LOG_FORMAT
  value: {{ .Values.logFormat }}
{{- if .Values.watchNamespaces }}
- name: KOPF_RUN_NAMESPACES
  value: {{ join " " .Values.watchNamespaces | quote }}
{{- else }}
- name: KOPF_RUN_CLUSTERWIDE
  value: "true"
{{- end }}
{{- with .Values.watch.labelSelector }}
- name: WATCH_LABEL_SELECTOR
  value: {{ . | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- $secrets := include "jobgroup.secrets" . }}
{{- if or $secrets .Values.extraVolumeMounts }}
volumeMounts:
{{- if $secrets }}
- name: redis
  mountPath: /etc/jobgroup/redis
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
