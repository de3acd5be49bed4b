{{/* The rights of the operator in the namespaces that it watches. */}}
{{- define "jobgroup.rules" -}}
# Whether a namespace is terminating. In all namespaces it includes kube-system, whose uid identifies the cluster.
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
# A pool scales its workload unless a HorizontalPodAutoscaler does. So a user who may create WorkerPools may scale.
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

{{/* The roleRef and subjects of a binding: (list $ "Role" "name of the role"). */}}
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
