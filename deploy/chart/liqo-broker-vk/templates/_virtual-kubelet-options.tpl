{{- /* As text, for NOTES.txt shows it to those whose release may not have it. */ -}}
{{- define "virtual-kubelet-options" -}}
apiVersion: offloading.liqo.io/v1beta1
kind: VkOptionsTemplate
metadata:
  name: virtual-kubelet-default
  namespace: {{ toYaml .Values.virtualKubelets.liqoNamespace }}
spec:
  createNode: false
  containerImage: {{ include "image" . }} # the image that you built and pushed
  extraArgs:
    - --broker-node={{ .Values.brokerNode }}
    # The consumer's virtual kubelet has already added API server support to its pods. Providers refuse duplicates.
    - --enable-apiserver-support=false
    {{- with .Values.virtualKubelets.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.image.pullPolicy }}
  pullPolicy: {{ . }}
  {{- end }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ toYaml . }}
    {{- end }}
  {{- end }}
{{- end -}}
