{{/* The classes of load balancers that Services of consumers may name, as a list of JSON. */}}
{{- define "loadBalancerClasses" -}}
{{- $classes := .Values.guard.loadBalancerClasses -}}
{{- range .Values.broker.extraArgs -}}
{{- if hasPrefix "--offer-load-balancer-class=" . -}}
{{- $classes = append $classes (trimSuffix ";default" (trimPrefix "--offer-load-balancer-class=" .)) -}}
{{- end -}}
{{- end -}}
{{- $classes | toJson -}}
{{- end -}}
