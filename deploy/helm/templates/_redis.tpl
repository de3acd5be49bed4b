{{/* Fail unless exactly one Redis is configured. */}}
{{- define "jobgroup.redisEnv" -}}
{{- $redis := .Values.redis }}
{{- $secret := $redis.existingSecret }}
{{- $ways := list }}
{{- if $redis.url }}{{ $ways = append $ways "redis.url" }}{{ end }}
{{- if $secret.urlKey }}{{ $ways = append $ways "redis.existingSecret.urlKey" }}{{ end }}
{{- if $redis.bundled.enabled }}{{ $ways = append $ways "redis.bundled.enabled" }}{{ end }}
{{- if contains "@" (default "" $redis.url) }}
{{- fail "redis.url: remove the user name and the password from the URL; put them into a Secret and name it in redis.existingSecret" }}
{{- end }}
{{- if not $ways }}
{{- fail "redis: set redis.url, or redis.existingSecret.name with redis.existingSecret.urlKey, or redis.bundled.enabled=true for evaluation" }}
{{- else if gt (len $ways) 1 }}
{{- fail (printf "redis: %s are set; set only one of them" (join " and " $ways)) }}
{{- end }}
{{- if and (or $secret.urlKey $secret.usernameKey $secret.passwordKey) (not $secret.name) }}
{{- fail "redis.existingSecret.name: set the name of the Secret that contains these keys" }}
{{- end }}
{{- if and $secret.name (not (or $secret.urlKey $secret.usernameKey $secret.passwordKey)) }}
{{- fail "redis.existingSecret: set the keys of the Secret: urlKey, usernameKey or passwordKey" }}
{{- end }}
{{- if and $redis.bundled.enabled (or $secret.name $redis.tls.caSecret) }}
{{- fail "redis.bundled: the bundled Redis has no password and no TLS; remove redis.existingSecret and redis.tls" }}
{{- end }}
{{- if $redis.bundled.enabled }}
- name: REDIS_URL
  value: redis://{{ include "jobgroup.fullname" . }}-redis.{{ .Release.Namespace }}:6379/0
{{- else if $redis.url }}
- name: REDIS_URL
  value: {{ $redis.url | quote }}
{{- else }}
- name: REDIS_URL_FILE
  value: /etc/jobgroup/redis/url
{{- end }}
{{- if $secret.usernameKey }}
- name: REDIS_USERNAME_FILE
  value: /etc/jobgroup/redis/username
{{- end }}
{{- if $secret.passwordKey }}
- name: REDIS_PASSWORD_FILE
  value: /etc/jobgroup/redis/password
{{- end }}
{{- if $redis.tls.caSecret }}
- name: REDIS_CA_FILE
  value: /etc/jobgroup/redis/ca.crt
{{- end }}
{{- end }}

{{/* The keys of Secrets that are mounted as files in /etc/jobgroup/redis; empty if there are none. */}}
{{- define "jobgroup.secrets" -}}
{{- with .Values.redis.existingSecret }}
{{- if .name }}
- secret:
    name: {{ .name | quote }}
    items:
    {{- with .urlKey }}
    - {key: {{ . | quote }}, path: url}
    {{- end }}
    {{- with .usernameKey }}
    - {key: {{ . | quote }}, path: username}
    {{- end }}
    {{- with .passwordKey }}
    - {key: {{ . | quote }}, path: password}
    {{- end }}
{{- end }}
{{- end }}
{{- with .Values.redis.tls }}
{{- if .caSecret }}
- secret:
    name: {{ .caSecret | quote }}
    items:
    - {key: {{ .caKey | quote }}, path: ca.crt}
{{- end }}
{{- end }}
{{- end }}
