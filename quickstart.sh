#!/usr/bin/env bash
# Installs a federation on clusters with Liqo v1.2: the steps of README.md, each after a check. quickstart.sh --help has the
# options. What it changes is listed before it begins; --remove undoes it.
set -euo pipefail

usage() {
  cat <<'END'
quickstart.sh --broker KUBECONFIG --provider KUBECONFIG... --consumer KUBECONFIG --image NAME:TAG

Installs the broker, peers it with the providers, peers the consumer with it, and runs an application on the providers.

  --broker KUBECONFIG        the cluster for the broker
  --provider KUBECONFIG...   clusters that share resources; may be repeated
  --consumer KUBECONFIG      the cluster whose pods use them
  --image NAME:TAG           the image, in a registry that these clusters reach (make image IMAGE=NAME:TAG PUSH=1)
  --service-type TYPE        LoadBalancer (the default) or NodePort, for the gateways and the remote IPAM
  --cpu N, --memory N, --pods N
                             the resources of each peering (16, 64Gi, 100)
  --application IMAGE        the image of the application (nginx)
  --dry-run                  check everything, print the commands, change nothing
  --remove                   unpeer, remove the broker, and restore the options of Liqo's virtual kubelets
  --yes                      do not ask before the first change

All clusters need Liqo v1.2, and must reach each other (docs/install.md). kubectl (1.31 or later), helm and
liqoctl must be in the PATH.
END
}

broker='' consumer='' image='' service_type=LoadBalancer cpu=16 memory=64Gi pods=100 application=nginx
dry_run='' remove='' yes=''
providers=()
# The annotation of Liqo's options that has the patch which restores them.
before=quickstart.brokering.liqo.io/before
template=vkoptionstemplate/virtual-kubelet-default
namespace=liqo-broker
shop=liqo-broker-quickstart
named='give the name of the image with a tag, such as registry.example.com/liqo-broker-vk:v0.1.0'

say() { printf '%s\n' "$*"; }
fail() {
  printf 'quickstart.sh: %s\n' "$*" >&2
  exit 1
}

# absolute prints a path that does not depend on the working directory.
absolute() { case $1 in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$PWD/$1" ;; esac }

# run prints a command that changes something, and runs it unless --dry-run is set.
run() {
  printf '  +'
  printf ' %q' "$@"
  printf '\n'
  [ -n "$dry_run" ] || "$@"
}

# kube KUBECONFIG ARGUMENTS... reads; changes are made by run kubectl.
kube() { kubectl --kubeconfig "$@"; }

parse() {
  while [ $# -gt 0 ]; do
    case $1 in
      --dry-run) dry_run=1 ;;
      --remove) remove=1 ;;
      --yes) yes=1 ;;
      -h | --help) usage && exit 0 ;;
      --provider)
        [ $# -gt 1 ] || fail "--provider needs a kubeconfig"
        while [ $# -gt 1 ] && [ "${2#-}" = "$2" ]; do
          providers+=("$(absolute "$2")")
          shift
        done
        ;;
      --broker | --consumer | --image | --service-type | --cpu | --memory | --pods | --application)
        [ $# -gt 1 ] || fail "$1 needs a value"
        local name=${1#--}
        printf -v "${name//-/_}" %s "$2"
        shift
        ;;
      *) fail "unknown argument $1 (see quickstart.sh --help)" ;;
    esac
    shift
  done
  [ -n "$broker" ] || fail "--broker is missing: the kubeconfig of the cluster for the broker"
  [ -n "$consumer" ] || fail "--consumer is missing: the kubeconfig of the cluster whose pods use the providers"
  [ ${#providers[@]} -gt 0 ] || fail "--provider is missing: the kubeconfig of a cluster that shares resources"
  case $service_type in LoadBalancer | NodePort) ;; *) fail "--service-type=$service_type: use LoadBalancer or NodePort" ;; esac
  broker=$(absolute "$broker") consumer=$(absolute "$consumer")
  [ -z "$remove" ] || return 0
  case ${image##*/} in
    *@* | '' | :* | *:) fail "--image=$image: $named" ;;
    *:*) ;;
    *) fail "--image=$image: $named" ;;
  esac
}

# id prints the id of a cluster in Liqo.
id() {
  kube "$1" get configmaps -A -l app.kubernetes.io/name=clusterid-configmap -o 'jsonpath={.items[0].data.CLUSTER_ID}' 2>/dev/null || true
}

# check_cluster ROLE KUBECONFIG
check_cluster() {
  [ -r "$2" ] || fail "--$1 $2: the file cannot be read"
  kube "$2" get --raw /readyz --request-timeout=10s >/dev/null || fail "--$1 $2: its API server does not answer"
  kube "$2" -n liqo get deployment liqo-controller-manager >/dev/null 2>&1 ||
    fail "--$1 $2: Liqo is not installed there: liqoctl install --kubeconfig $2 --version v1.2.0"
  [ "$(kube "$2" auth can-i '*' '*' --all-namespaces 2>/dev/null || true)" = yes ] ||
    fail "--$1 $2: this identity may not do everything there, which peerings need"
  local name
  name=$(id "$2")
  [ -n "$name" ] || fail "--$1 $2: Liqo has no cluster id there"
  case " $ids " in *" $name "*) fail "--$1 $2: the cluster id $name is another cluster's: give each its own at liqoctl install" ;; esac
  ids="$ids $name"
  say "  $1 $name"
}

check() {
  say "Checking the programs and the clusters"
  local program file others
  for program in kubectl helm liqoctl; do
    command -v "$program" >/dev/null || fail "$program is not in the PATH"
  done
  ids=''
  check_cluster broker "$broker"
  for file in "${providers[@]}"; do check_cluster provider "$file"; done
  check_cluster consumer "$consumer"
  [ -z "$remove" ] || return 0
  kube "$broker" get validatingadmissionpolicies >/dev/null 2>&1 ||
    fail "--broker $broker: it has no ValidatingAdmissionPolicies: upgrade Kubernetes to 1.30 or later"
  others=$(kube "$broker" get deployments -A -l app.kubernetes.io/name=liqo-broker-vk,app.kubernetes.io/component=broker \
    -o 'jsonpath={range .items[*]}{.metadata.namespace}{"\n"}{end}' | grep -vx "$namespace" || true)
  [ -z "$others" ] || fail "--broker $broker: another broker is installed in the namespace $others, and a cluster has one"
  others=$(kube "$broker" get virtualnodes -A -o 'jsonpath={range .items[*]}{.spec.createNode}{"\n"}{end}' | grep -cx true || true)
  [ "$others" = 0 ] || fail "--broker $broker: $others VirtualNodes have a Node of their own: recreate them first" \
    "(docs/install.md, existing peerings)"
}

announce() {
  if [ -n "$remove" ]; then
    cat <<END

This removes the namespace $shop, the peerings of these clusters, the broker with its namespace $namespace, and the
additional rights of the consumer's virtual kubelets. The CRDs with their objects stay, and the guard.
END
  else
    cat <<END

This changes
  broker     the Helm release liqo-broker in the namespace $namespace, with CRDs and admission policies; Liqo's options of
             virtual kubelets
  consumer   Liqo's options of virtual kubelets, two ClusterRoles with their bindings, the namespace $shop
  peerings   of the broker with ${#providers[@]} provider(s), and of the consumer with the broker
The way back is the same command with --remove.
END
  fi
  [ -z "$dry_run$yes" ] || return 0
  printf 'Continue? [y/N] '
  local answer=''
  read -r answer || true
  [ "$answer" = y ] || fail "nothing was changed"
}

# options KUBECONFIG JSONPATH prints a field of Liqo's options.
options() { kube "$1" -n liqo get "$template" -o "jsonpath=$2"; }

# other_arguments KUBECONFIG prints the arguments in Liqo's options that this script does not set, as ,"ARGUMENT" each.
other_arguments() {
  options "$1" '{range .spec.extraArgs[*]}{@}{"\n"}{end}' |
    sed -E -e '/^--(broker-node|enable-apiserver-support|direct-traffic|remote-ipam)(=|$)/d' -e '/^$/d' -e 's/["\\]/\\&/g' -e 's/.*/,"&"/' |
    tr -d '\n'
}

# set_options KUBECONFIG ARGUMENTS [FIELDS] changes Liqo's options, after it has kept the previous ones. ARGUMENTS are
# elements of a JSON list, FIELDS of a JSON object.
set_options() {
  if [ -z "$(options "$1" "{.metadata.annotations.${before//./\\.}}")" ]; then
    local args
    args=$(options "$1" '{.spec.extraArgs}')
    run kubectl --kubeconfig "$1" -n liqo annotate "$template" "$before={\"spec\":{\"createNode\":$(options "$1" '{.spec.createNode}'),\
\"containerImage\":\"$(options "$1" '{.spec.containerImage}')\",\"extraArgs\":${args:-null}}}"
  fi
  run kubectl --kubeconfig "$1" -n liqo patch "$template" --type=merge \
    -p "{\"spec\":{${3:-}\"containerImage\":\"$image\",\"extraArgs\":[$2$(other_arguments "$1")]}}"
}

restore_options() {
  local patch
  patch=$(options "$1" "{.metadata.annotations.${before//./\\.}}")
  [ -n "$patch" ] || return 0
  run kubectl --kubeconfig "$1" -n liqo patch "$template" --type=merge -p "$patch"
  run kubectl --kubeconfig "$1" -n liqo annotate "$template" "$before-"
}

install_broker() {
  say $'\n'"1. The broker"
  kube "$broker" get namespace "$namespace" >/dev/null 2>&1 || run kubectl --kubeconfig "$broker" create namespace "$namespace"
  run kubectl --kubeconfig "$broker" label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted --overwrite
  run helm --kubeconfig "$broker" upgrade --install liqo-broker deploy/chart/liqo-broker-vk -n "$namespace" \
    --set "networkManager.service.type=$service_type" --set "image.repository=${image%:*}" --set "image.tag=${image##*:}"
  run kubectl --kubeconfig "$broker" -n "$namespace" rollout status deployment/liqo-broker --timeout=5m
  set_options "$broker" '"--broker-node=liqo-broker","--enable-apiserver-support=false"' '"createNode":false,'
}

peer_providers() {
  say $'\n'"2. The providers"
  local file name
  for file in "${providers[@]}"; do
    name=$(id "$file")
    if kube "$broker" get providercluster "$name" >/dev/null 2>&1; then
      say "  $name is a provider already"
      continue
    fi
    run liqoctl peer --kubeconfig "$broker" --remote-kubeconfig "$file" --gw-server-service-type "$service_type" \
      --cpu "$cpu" --memory "$memory" --pods "$pods"
    run kubectl --kubeconfig "$broker" wait --for=create "providercluster/$name" --timeout=2m
    run kubectl --kubeconfig "$broker" wait --for=condition=Ready "providercluster/$name" --timeout=5m
  done
}

# remote_ipam prints the address of the remote IPAM for consumers.
remote_ipam() {
  local service=service/liqo-network-manager address
  if [ -n "$dry_run" ]; then
    say '<address>'
    return
  fi
  if [ "$service_type" = NodePort ]; then
    address=$(kube "$broker" get nodes -l 'liqo.io/type!=virtual-node' \
      -o 'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}')
    say "${address%% *}:$(kube "$broker" -n "$namespace" get "$service" -o 'jsonpath={.spec.ports[0].nodePort}')"
    return
  fi
  kube "$broker" -n "$namespace" wait --for='jsonpath={.status.loadBalancer.ingress}' "$service" --timeout=3m >&2 ||
    fail "the Service liqo-network-manager has no address: without load balancers use --service-type NodePort"
  address=$(kube "$broker" -n "$namespace" get "$service" -o "jsonpath={.status.loadBalancer.ingress[0]['ip','hostname']}")
  case $address in *:*) address="[$address]" ;; esac
  say "$address"
}

# binding ROLE prints the name of the binding for the virtual kubelet of the consumer.
binding() { say "liqo-broker-vk-$1-liqo-tenant-$broker_id-$broker_id"; }

peer_consumer() {
  say $'\n'"3. The consumer"
  local address role
  address=$(remote_ipam)
  set_options "$consumer" "\"--enable-apiserver-support=true\",\"--direct-traffic=true\",\"--remote-ipam=server=$address\""
  run kubectl --kubeconfig "$consumer" apply -f deploy/virtual-kubelet-auth.yaml -f deploy/virtual-kubelet-addresses.yaml
  for role in kubelet-auth addresses; do
    kube "$consumer" get clusterrolebinding "$(binding "$role")" >/dev/null 2>&1 ||
      run kubectl --kubeconfig "$consumer" create clusterrolebinding "$(binding "$role")" \
        --clusterrole="liqo-broker-vk-$role" --serviceaccount="liqo-tenant-$broker_id:$broker_id"
  done
  if kube "$consumer" get node "$broker_id" >/dev/null 2>&1; then
    say "  the consumer has the node $broker_id already; its virtual kubelet keeps its image and arguments"
  else
    run liqoctl peer --kubeconfig "$consumer" --remote-kubeconfig "$broker" --gw-server-service-type "$service_type" \
      --resource-slice-class broker --cpu "$cpu" --memory "$memory" --pods "$pods"
    run kubectl --kubeconfig "$consumer" wait --for=create "node/$broker_id" --timeout=3m
  fi
  run kubectl --kubeconfig "$consumer" wait --for=condition=Ready "node/$broker_id" --timeout=5m
}

run_application() {
  say $'\n'"4. An application"
  if ! kube "$consumer" get namespace "$shop" >/dev/null 2>&1; then
    run kubectl --kubeconfig "$consumer" create namespace "$shop"
    run liqoctl offload namespace "$shop" --kubeconfig "$consumer" --pod-offloading-strategy Remote
    run kubectl --kubeconfig "$consumer" -n "$shop" create deployment web --image="$application" --replicas=3
  fi
  run kubectl --kubeconfig "$consumer" -n "$shop" rollout status deployment/web --timeout=5m
  run kubectl --kubeconfig "$broker" get pods -A -l brokering.liqo.io/provider -L brokering.liqo.io/provider
  cat <<END

The dashboard is at https://127.0.0.1:8000/ while this runs:
  kubectl --kubeconfig $broker -n $namespace port-forward service/liqo-broker-catalog 8000
END
}

# unpeer KUBECONFIG KUBECONFIG(of the provider)
unpeer() {
  if kube "$1" get foreigncluster "$(id "$2")" >/dev/null 2>&1; then
    run liqoctl unpeer --kubeconfig "$1" --remote-kubeconfig "$2" --skip-confirm
  fi
}

remove_all() {
  say $'\n'"1. The consumer"
  local file role
  if kube "$consumer" get namespace "$shop" >/dev/null 2>&1; then
    run liqoctl unoffload namespace "$shop" --kubeconfig "$consumer" --skip-confirm
    run kubectl --kubeconfig "$consumer" delete namespace "$shop"
  fi
  unpeer "$consumer" "$broker"
  for role in kubelet-auth addresses; do
    run kubectl --kubeconfig "$consumer" delete clusterrolebinding "$(binding "$role")" --ignore-not-found
  done
  restore_options "$consumer"
  say $'\n'"2. The providers"
  for file in "${providers[@]}"; do
    unpeer "$broker" "$file"
  done
  say $'\n'"3. The broker"
  if [ -n "$(helm --kubeconfig "$broker" list -n "$namespace" --filter '^liqo-broker$' -q)" ]; then
    run helm --kubeconfig "$broker" uninstall liqo-broker -n "$namespace"
  fi
  restore_options "$broker"
  run kubectl --kubeconfig "$broker" delete namespace "$namespace" --ignore-not-found
  cat <<END

The guard and the CRDs are left. If no other consumer is peered, this removes them with all ProviderClusters and policies:
  kubectl --kubeconfig $broker delete -f deploy/guard.yaml -f deploy/crds
END
}

parse "$@"
cd "$(dirname "${BASH_SOURCE[0]}")"
check
broker_id=$(id "$broker")
announce
if [ -n "$remove" ]; then
  remove_all
  exit 0
fi
install_broker
peer_providers
peer_consumer
run_application
