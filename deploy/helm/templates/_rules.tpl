{{/* What the operator may do where the JobGroups are, verb by verb. */}}
{{- define "jobgroup.rules" -}}
# Whether a namespace is on its way out. Granted everywhere, it covers kube-system, whose uid names the cluster.
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get]
- apiGroups: [jobgroups.dev]
  resources: [jobgroups]
  verbs: [get, list, watch, update, delete]
- apiGroups: [jobgroups.dev]
  resources: [workerpools]
  verbs: [get, list, watch]
- apiGroups: [jobgroups.dev]
  resources: [jobgroups/status, workerpools/status]
  verbs: [update]
# A pool scales its workload, and stands back where another scaler does.
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get]
- apiGroups: [apps]
  resources: [deployments/scale, statefulsets/scale]
  verbs: [patch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* Who is given a role: (list $ "Role" "name of the role"). */}}
{{- define "jobgroup.binding" -}}
{{- $root := first . -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}
  name: {{ last . | quote }}
subjects:
- kind: ServiceAccount
  name: {{ include "jobgroup.account" $root | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
{{- end }}
