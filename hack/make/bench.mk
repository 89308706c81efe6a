# Measurements: docs/benchmarks.md.

##@ Benchmarks

BENCH_ROUNDS ?= 5
# The one-node cluster has an audit log. On other clusters, requests aren't counted by verb.
BENCH_AUDIT_LOG ?= $(if $(filter $(CLUSTER_KUBECONFIG),$(or $(KUBECONFIG),$(CLUSTER_KUBECONFIG))),$(CLUSTER_STATE)/logs/audit.log)
# The cost of policies is measured if the image can be signed, which requires a writable registry.
BENCH_POLICY ?= $(if $(BENCH_AUDIT_LOG),--cosign $(LOCALBIN)/cosign --sign-at 10.97.$(CLUSTER_INSTANCE).2:5000/$(BYTECODE_PREFIX)/go-tracepoint-counter:latest --sign-ca $(CLUSTER_STATE)/pki/registry-ca.crt)
# A reboot is simulated only on a cluster for tests, because it removes everything that bpfman has loaded on the node.
BENCH_REBOOT ?= $(if $(BENCH_AUDIT_LOG),--reboot)

.PHONY: bench
bench: $(LOCALBIN)/cosign ## Measure time, requests, and memory, compared with the daemon alone and with the daemon as upstream ships it, on the cluster of KUBECONFIG or the one-node cluster, where bpfman is deployed.
	go -C tests build -trimpath -o $(LOCALBIN)/bench ./bench
	KUBECONFIG=$(or $(KUBECONFIG),$(CLUSTER_KUBECONFIG)) $(LOCALBIN)/bench --kubectl $(KUBECTL) --probe-image $(BPFMAN_NODE_PROBE_IMG) \
		--rounds $(BENCH_ROUNDS) --audit-log "$(BENCH_AUDIT_LOG)" --out $(LOCALBIN)/bench.json $(BENCH_POLICY) $(BENCH_REBOOT)
	@$(MAKE) --no-print-directory bench-csi bench-inspector bench-plugin bench-rollback bench-pod-start bench-pod-attach

# Its results are added to those of the other benchmarks.
.PHONY: bench-plugin
bench-plugin: envtest kubectl-bpfman ## Measure `kubectl bpfman programs` with 1,000 nodes of 100 programs each, on a separate kube-apiserver.
	KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) KUBECTL_BPFMAN=$(LOCALBIN)/kubectl-bpfman BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json \
		go -C tests test -count=1 -run '^$$' -bench Programs -benchtime 3x ./envtest/plugin

.PHONY: bench-rollback
bench-rollback: ## Measure how long a node is cut off that rolls a change back, with 300 interfaces and 16 busy workers; takes about two minutes.
	BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json go -C agent test -count=1 -run '^$$' -bench Rollback -benchtime 1x ./controller

.PHONY: bench-pod-start
bench-pod-start: ## Measure the agent's work for the start of a pod on a node with 50 objects and 300 interfaces (as root); takes half a minute.
	BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json go -C agent test -count=1 -run '^$$' -bench PodStart -benchtime 20x ./controller

.PHONY: bench-pod-attach
bench-pod-attach: build-first-packet ## Measure how long the start of a pod on containerd 2 waits until a program is attached (as root); takes half a minute.
	$(FIRST_PACKET) BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json go -C tests test -count=1 -run '^$$' -bench PodAttach -benchtime 40x ./firstpacket

.PHONY: bench-csi
bench-csi: bytecode build/csi/cmd/bpfman-csi build-launcher ## Measure the CSI plugin with 200 volumes on the real daemon, with 1, 10, and 50 workers (as root).
	$(REAL_DAEMON) BPFMAN_CSI=$(LOCALBIN)/bpfman-csi BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json \
		go -C csi test -count=1 -run '^$$' -bench Volumes -benchtime 1x ./cmd/bpfman-csi

.PHONY: bench-inspector
bench-inspector: envtest build/inspector/cmd/bpfman-inspector ## Measure the inspector with 200 programs, 200 links, and 500 processes: one scan, and its idle load (as root; takes three minutes).
	BPFMAN_INSPECTOR=$(LOCALBIN)/bpfman-inspector KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json \
		go -C tests test -count=1 -run '^$$' -bench Inspector -benchtime 1x -timeout 30m ./inspector

# What two cores can do in ten minutes. For 250,000 reports, use NODES=5000 PROGRAMS=50.
NODES ?= 500
SCALE_FLAGS ?=

.PHONY: bench-scale bench-agent bench-rollout
bench-scale bench-agent bench-rollout: PROGRAMS ?= 20
bench-rollout: NODES = 5000
bench-rollout: SCALE_PART = --rollout-only --out $(LOCALBIN)/bench-rollout.json
bench-rollout: bench-scale ## Measure a rollout in ten steps on 5,000 nodes, and their confirmations; this is a part of bench-scale.
bench-agent: SCALE_PART = --agent-only --out $(LOCALBIN)/bench-agent.json
bench-agent: bench-scale ## Measure the memory of an agent with 60 programs; this is the part of bench-scale that takes a minute.
bench-scale: envtest build/operator/cmd/bpfman-operator build/agent/cmd/bpfman-agent $(LOCALBIN)/kwok ## Measure what a cluster of NODES nodes with PROGRAMS programs costs the operator, the API server, and the agents, on a separate kube-apiserver.
	go -C tests build -trimpath -o $(LOCALBIN)/scale ./scale
	go -C operator test -c -trimpath -o $(LOCALBIN)/reports.test ./reports
	KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) $(LOCALBIN)/scale $(SCALE_FLAGS) --reports-test $(LOCALBIN)/reports.test --nodes $(NODES) --programs $(PROGRAMS) --operator $(LOCALBIN)/bpfman-operator --agent $(LOCALBIN)/bpfman-agent \
		--kwok $(LOCALBIN)/kwok --kwok-stages "$$($(call module_files,sigs.k8s.io/kwok@$(KWOK_VERSION)))/kustomize/stage" --out $(LOCALBIN)/bench-scale.json $(SCALE_PART)
