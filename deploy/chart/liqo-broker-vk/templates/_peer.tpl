{{/*
The variables by which policies know a peer in its tenant namespace, and what its replicator writes there. The certificate of
its control plane, and of who peers it, has the organisation liqo.io (OrganizationControlPlaneCSR in
pkg/liqo-controller-manager/authentication/csr.go of Liqo v1.2.0); its name is the id in the label of the namespace.
*/}}
{{- define "peer" -}}
- name: id
  expression: "namespaceObject == null ? '' : namespaceObject.?metadata.?labels[?'liqo.io/remote-cluster-id'].orValue('')"
- name: peer
  expression: >-
    'liqo.io' in request.userInfo.?groups.orValue([]) ||
    (variables.id != '' && request.userInfo.?username.orValue('') == variables.id)
{{- end -}}

{{- define "replicated" -}}
- name: replicas
  expression: >-
    [object.?metadata.?labels.orValue({})] + (oldObject == null ? [] : [oldObject.?metadata.?labels.orValue({})])
# What Liqo's replicator writes (mutateLabelsForRemote in internal/crdReplicator/reflection/handler.go of Liqo v1.2.0).
- name: own
  expression: >-
    variables.id != '' && variables.replicas.all(l, l[?'liqo.io/replicated'].orValue('') == 'true' &&
    l[?'liqo.io/replication'].orValue('false') == 'false' && l[?'liqo.io/originID'].orValue('') == variables.id &&
    l[?'liqo.io/remote-cluster-id'].orValue('') == variables.id && l[?'liqo.io/remoteID'].orValue('') != variables.id)
{{- end -}}
