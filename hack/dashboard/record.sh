#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# `make dashboard-data`: programs and readers come, go, and fail on a cluster of this machine, where bpfman is
# deployed, for MINUTES. A Prometheus records the metrics to DASHBOARD_DATA.
set -euo pipefail
: "${DASHBOARD_DATA:?run this as: make dashboard-data}" "${KUBECONFIG:?}" "${CLUSTER:?}" "${LOCALBIN:?}" "${KUBECTL:?}" "${MINUTES:?}"
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)

kubectl() { "$KUBECTL" "$@" >/dev/null; }
read -ra cluster <<<"$CLUSTER"
nodes=$("$KUBECTL" get nodes --no-headers | wc -l)
# on NODE COMMAND…: what the probe prints, on the node with that number.
on() { "${cluster[@]}" --node "$1" exec "$LOCALBIN/node-probe" "${@:2}"; }

work=$(mktemp -d)
children=()
finish() {
	# Prometheus writes the last data when it ends.
	for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
	wait || true
	rm -r "$work"
}
trap finish EXIT

kubectl -n bpfman patch configmap bpfman-config --type merge -p '{"data": {
	"bpfman.agent.metric.addr": ":8174", "bpfman.csi.metric.addr": ":8173", "bpfman.inspector.metric.addr": ":8172",
	"bpfman.inspector.statistics": "true", "bpfman.csi.cluster.access": "read"}}'
kubectl apply -f "$root/config/prometheus/objects/scraper.yaml"
kubectl -n bpfman wait --for=jsonpath='{.data.token}' --timeout=1m secret/bpfman-metrics-scraper-token
"$KUBECTL" -n bpfman get secret bpfman-metrics-scraper-token -o jsonpath='{.data.token}' | base64 -d >"$work/token"
# The configuration names these files relative to itself.
cp "$KUBECONFIG" "$work/kubeconfig"
cp "$here/prometheus.yaml" "$work"
rm -rf "$DASHBOARD_DATA"
"$LOCALBIN/prometheus" --config.file="$work/prometheus.yaml" --storage.tsdb.path="$DASHBOARD_DATA" \
	--storage.tsdb.retention.time=10y --web.listen-address=127.0.0.1:0 --log.level=warn &
children+=($!)

# What another recording has left.
kubectl delete clusterrolebinding dashboard-signals-user --ignore-not-found
kubectl delete -f "$here/workload.yaml" --ignore-not-found
openssl ecparam -genkey -name prime256v1 -noout | openssl ec -pubout -out "$work/key.pub" 2>/dev/null
"$KUBECTL" -n bpfman create secret generic dashboard-key --from-file="$work/key.pub" --dry-run=client -o yaml | kubectl apply -f -
for example in go-target go-tcx-counter go-uprobe-counter go-xdp-counter map-exporter; do
	kubectl apply -k "$root/examples/config/$example"
done
kubectl apply -f "$here/workload.yaml"

kubectl -n shop rollout status --timeout=2m deployment/readers

# traffic ADDRESS LEAST: a wave of packets to a port where nothing listens, at least that many a second.
traffic() {
	trap 'exit 0' TERM
	for ((second = 0; ; second++)); do
		for ((packet = 0; packet < $2 + $2 * (second / 60 % 4); packet++)); do
			echo packet >"/dev/udp/$1/9" || true
		done 2>/dev/null
		sleep 1
	done
}
for address in $("$KUBECTL" get nodes -o jsonpath='{.items[*].status.addresses[0].address}'); do
	traffic "$address" $((50 + 25 * ${#children[@]})) &
	children+=($!)
done

from=$(date +%s)
for ((minute = 0; minute < MINUTES; minute++)); do
	echo "minute $minute of $MINUTES"
	# Different globals reload the program. Readers come and go.
	for part in 1 2 3; do
		kubectl patch tracepointprogram opened-files --type merge -p '{"spec": {"globaldata": {"GLOBAL_u8": ['$((1 + (minute * 3 + part) % 200))']}}}'
		kubectl -n shop scale deployment/readers --replicas=$((2 + (minute * 3 + part) * 5 % 11))
		sleep 20
	done
	kubectl -n shop scale deployment/web --replicas=$((3 + minute / 3 % 4))
	case $((minute * 20 / MINUTES)) in
	4 | 9 | 10)
		# Something else unloads a program.
		id=$(on $((1 + minute % nodes)) programs | jq 'map(select(.function == "tcx_stats"))[0].id')
		on $((1 + minute % nodes)) unload "$id"
		;;
	5) on 1 hold other tcx eth0 2 >/dev/null & ;; # software that knows nothing of bpfman comes first in the chain
	6) kubectl -n shop scale deployment/editor --replicas=2 ;;
	8) kubectl create clusterrolebinding dashboard-signals-user --clusterrole=dashboard-signals-user --serviceaccount=shop:editor ;;
	12) kubectl -n bpfman delete pod -l name=bpfman-daemon --field-selector "spec.nodeName=$("$KUBECTL" get nodes -o jsonpath='{.items[0].metadata.name}')" ;;
	14) kubectl delete -k "$root/examples/config/go-xdp-counter" ;;
	15) on 1 end-hold other >/dev/null ;;
	16) kubectl delete tracepointprogram exec-log ;;
	esac
done
to=$(date +%s)
echo "{\"from\": $from, \"to\": $to}" >"$DASHBOARD_DATA/recorded.json"
