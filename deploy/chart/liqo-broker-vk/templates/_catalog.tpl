{{/* The container of the catalog, in pods of its own or in those of the broker (catalog.mode). */}}
{{- define "catalog.container" -}}
- name: catalog
  image: {{ include "image" . }} # the image that you built and pushed
  {{- with .Values.image.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command: [/usr/bin/liqo-broker-vk]
  args:
    - catalog
    - --broker-node={{ .Values.brokerNode }}
    {{- if .Values.catalog.plainHTTP }}
    - --plain-http
    {{- end }}
    {{- if not (or .Values.catalog.plainHTTP .Values.catalog.tlsSecret) }}
    - --namespace=$(POD_NAMESPACE)
    - --tls-secret=liqo-broker-catalog
    {{- end }}
    {{- if .Values.catalog.tlsSecret }}
    - --tls-cert-file=/etc/liqo-broker-catalog/tls.crt
    - --tls-key-file=/etc/liqo-broker-catalog/tls.key
    {{- end }}
    {{- if ne .Values.logLevel "info" }}
    - --log-level={{ .Values.logLevel }}
    {{- end }}
    {{- with .Values.catalog.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  env:
    - name: POD_NAMESPACE
      valueFrom:
        fieldRef:
          fieldPath: metadata.namespace
    {{- with .Values.catalog.env }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - name: catalog
      containerPort: 8000
    # Not named metrics: the Service liqo-broker distinguishes the pods by the names of ports.
    - name: catalog-metrics
      containerPort: 8082
    - name: catalog-health
      containerPort: 8083
  livenessProbe:
    httpGet:
      path: /livez
      port: catalog-health
    periodSeconds: 10
    failureThreshold: 6
  readinessProbe:
    httpGet:
      path: /readyz
      port: catalog-health
    periodSeconds: 5
  resources:
    {{- toYaml .Values.catalog.resources | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
  {{- if or .Values.catalog.tlsSecret .Values.catalog.volumeMounts }}
  volumeMounts:
    {{- if .Values.catalog.tlsSecret }}
    - name: tls
      mountPath: /etc/liqo-broker-catalog
      readOnly: true
    {{- end }}
    {{- with .Values.catalog.volumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end }}

{{/* Its volumes; empty if it has none. */}}
{{- define "catalog.volumes" -}}
{{- if .Values.catalog.tlsSecret }}
- name: tls
  secret:
    secretName: {{ toYaml .Values.catalog.tlsSecret }}
{{- end }}
{{- with .Values.catalog.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
