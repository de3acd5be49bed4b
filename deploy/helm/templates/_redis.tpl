{{/* Fail unless exactly one Redis is configured, without a contradiction. */}}
{{- define "jobgroup.checkRedis" -}}
{{- $redis := .Values.redis }}
{{- $secret := $redis.existingSecret }}
{{- $sentinels := $redis.sentinel.existingSecret }}
{{- $ways := list }}
{{- if $redis.url }}{{ $ways = append $ways "redis.url" }}{{ end }}
{{- if $redis.addresses }}{{ $ways = append $ways "redis.addresses" }}{{ end }}
{{- if $secret.urlKey }}{{ $ways = append $ways "redis.existingSecret.urlKey" }}{{ end }}
{{- if $redis.bundled.enabled }}{{ $ways = append $ways "redis.bundled.enabled" }}{{ end }}
{{- if contains "@" (default "" $redis.url) }}
{{- fail "redis.url: remove the user name and the password from the URL; put them into a Secret and name it in redis.existingSecret" }}
{{- end }}
{{- range $redis.addresses }}
{{- if contains "@" . }}
{{- fail "redis.addresses: remove the user name and the password; put them into a Secret and name it in redis.existingSecret" }}
{{- else if not (regexMatch "^([^\\s/:,?#\\[\\]]+|\\[[0-9a-fA-F:.]+\\]):[0-9]{1,5}$" .) }}
{{- fail (printf "redis.addresses: %q is not host:port" .) }}
{{- end }}
{{- end }}
{{- if not $ways }}
{{- fail "redis: set redis.url, or redis.addresses, or redis.existingSecret.name with redis.existingSecret.urlKey, or redis.bundled.enabled=true for evaluation" }}
{{- else if gt (len $ways) 1 }}
{{- fail (printf "redis: %s are set; set only one of them" (join " and " $ways)) }}
{{- end }}
{{- if and (or $secret.urlKey $secret.usernameKey $secret.passwordKey) (not $secret.name) }}
{{- fail "redis.existingSecret.name: set the name of the Secret that contains these keys" }}
{{- end }}
{{- if and $secret.name (not (or $secret.urlKey $secret.usernameKey $secret.passwordKey)) }}
{{- fail "redis.existingSecret: set the keys of the Secret: urlKey, usernameKey or passwordKey" }}
{{- end }}
{{- if and (or $sentinels.usernameKey $sentinels.passwordKey) (not $sentinels.name) }}
{{- fail "redis.sentinel.existingSecret.name: set the name of the Secret that contains these keys" }}
{{- end }}
{{- if and $sentinels.name (not (or $sentinels.usernameKey $sentinels.passwordKey)) }}
{{- fail "redis.sentinel.existingSecret: set the keys of the Secret: usernameKey or passwordKey" }}
{{- end }}
{{- if and $redis.bundled.enabled (or $secret.name $redis.tls.caSecret $redis.tls.certSecret) }}
{{- fail "redis.bundled: the bundled Redis has no password and no TLS; remove redis.existingSecret and redis.tls" }}
{{- end }}
{{- range $name, $value := dict "sentinel.master" $redis.sentinel.master "cluster" $redis.cluster "database" $redis.database "tls.enabled" $redis.tls.enabled }}
{{- if and $value (not $redis.addresses) }}
{{- fail (printf "redis.%s: only redis.addresses uses it; a URL says this itself" $name) }}
{{- end }}
{{- end }}
{{- if and $redis.sentinel.master $redis.cluster }}
{{- fail "redis: redis.sentinel.master and redis.cluster are set; set only one of them" }}
{{- end }}
{{- if and (gt (len $redis.addresses) 1) (not $redis.sentinel.master) (not $redis.cluster) }}
{{- fail "redis.addresses: for several addresses, set redis.sentinel.master if they are sentinels, or redis.cluster=true if they are nodes of a Redis Cluster" }}
{{- end }}
{{- if and $redis.cluster $redis.database }}
{{- fail "redis.database: a Redis Cluster has only the database 0" }}
{{- end }}
{{- if and (or $redis.cluster (regexMatch "^rediss?[+]cluster:" $redis.url)) (not (regexMatch "^[^{]*[{][^}]+[}]" $redis.prefix)) }}
{{- fail (printf "redis.prefix: a Redis Cluster needs a hash tag that puts all keys of the prefix into one slot: use {%s}" $redis.prefix) }}
{{- end }}
{{- $isTls := or $redis.tls.enabled (hasPrefix "rediss" $redis.url) $secret.urlKey }}
{{- if and (or $redis.tls.caSecret $redis.tls.certSecret) (not $isTls) }}
{{- fail "redis.tls: certificates need TLS; set redis.tls.enabled=true with redis.addresses, or use a rediss... URL" }}
{{- end }}
{{- if and $sentinels.name (not (or $redis.sentinel.master (contains "+sentinel://" $redis.url) $secret.urlKey)) }}
{{- fail "redis.sentinel.existingSecret: there are no sentinels; set redis.sentinel.master, or use a redis+sentinel URL" }}
{{- end }}
{{- end }}

{{/* The URL of redis.addresses. */}}
{{- define "jobgroup.redisUrl" -}}
{{- $scheme := ternary "rediss" "redis" .tls.enabled }}
{{- $hosts := join "," .addresses }}
{{- if .cluster -}}
{{ $scheme }}+cluster://{{ $hosts }}
{{- else if .sentinel.master -}}
{{ $scheme }}+sentinel://{{ $hosts }}/{{ .sentinel.master }}/{{ int .database }}
{{- if and .tls.enabled (not .sentinel.tls) }}?sentinel_tls=false{{ end }}
{{- else -}}
{{ $scheme }}://{{ $hosts }}/{{ int .database }}
{{- end }}
{{- end }}

{{/* The environment variables about Redis. */}}
{{- define "jobgroup.redisEnv" -}}
{{- include "jobgroup.checkRedis" . }}
{{- $redis := .Values.redis }}
{{- if $redis.bundled.enabled }}
- name: REDIS_URL
  value: redis://{{ include "jobgroup.fullname" . }}-redis.{{ .Release.Namespace }}:6379/0
{{- else if $redis.url }}
- name: REDIS_URL
  value: {{ $redis.url | quote }}
{{- else if $redis.addresses }}
- name: REDIS_URL
  value: {{ include "jobgroup.redisUrl" $redis | quote }}
{{- else }}
- name: REDIS_URL_FILE
  value: /etc/jobgroup/redis/url
{{- end }}
{{- if $redis.existingSecret.usernameKey }}
- name: REDIS_USERNAME_FILE
  value: /etc/jobgroup/redis/username
{{- end }}
{{- if $redis.existingSecret.passwordKey }}
- name: REDIS_PASSWORD_FILE
  value: /etc/jobgroup/redis/password
{{- end }}
{{- if $redis.sentinel.existingSecret.usernameKey }}
- name: REDIS_SENTINEL_USERNAME_FILE
  value: /etc/jobgroup/redis/sentinel-username
{{- end }}
{{- if $redis.sentinel.existingSecret.passwordKey }}
- name: REDIS_SENTINEL_PASSWORD_FILE
  value: /etc/jobgroup/redis/sentinel-password
{{- end }}
{{- if $redis.tls.caSecret }}
- name: REDIS_CA_FILE
  value: /etc/jobgroup/redis/ca.crt
{{- end }}
{{- if $redis.tls.certSecret }}
- name: REDIS_CERT_FILE
  value: /etc/jobgroup/redis/tls.crt
- name: REDIS_KEY_FILE
  value: /etc/jobgroup/redis/tls.key
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
{{- with .Values.redis.sentinel.existingSecret }}
{{- if .name }}
- secret:
    name: {{ .name | quote }}
    items:
    {{- with .usernameKey }}
    - {key: {{ . | quote }}, path: sentinel-username}
    {{- end }}
    {{- with .passwordKey }}
    - {key: {{ . | quote }}, path: sentinel-password}
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
{{- if .certSecret }}
- secret:
    name: {{ .certSecret | quote }}
    items:
    - {key: {{ .certKey | quote }}, path: tls.crt}
    - {key: {{ .keyKey | quote }}, path: tls.key}
{{- end }}
{{- end }}
{{- end }}
