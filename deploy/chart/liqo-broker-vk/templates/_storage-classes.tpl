{{/* The storage classes that claims of consumers may have, as a list of JSON. */}}
{{- define "storageClasses" -}}
{{- $classes := list -}}
{{- range .Values.broker.extraArgs -}}
{{- if hasPrefix "--offer-storage-class=" . -}}
{{- $classes = append $classes (trimSuffix ";default" (trimPrefix "--offer-storage-class=" .)) -}}
{{- end -}}
{{- end -}}
{{- $classes | toJson -}}
{{- end -}}
