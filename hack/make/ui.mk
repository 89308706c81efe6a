# The page of `kubectl bpfman ui`, which the plugin contains.

##@ Page

UI := cli/ui/page
UI_PAGE := $(UI)/dist/index.html
UI_SOURCES := $(filter-out %/views.ts,$(wildcard $(UI)/src/*))

$(UI)/node_modules/.package-lock.json: $(UI)/package.json $(UI)/package-lock.json
	npm --prefix $(UI) ci --silent
	@touch $@

# The types of what the server sends.
$(UI)/src/views.ts: $(wildcard cli/ui/view/*.go cli/ui/typescript/*.go cli/why/page.go cli/inventory/*.go internal/live/*.go apis/v1alpha1/bpfnode.go)
	go -C cli run ./ui/typescript >$@.new && mv $@.new $@

$(UI_PAGE): $(UI)/node_modules/.package-lock.json $(UI)/src/views.ts $(UI_SOURCES) $(UI)/build.mjs $(UI)/tsconfig.json
	npm --prefix $(UI) run --silent check
	npm --prefix $(UI) run --silent build

# Everything but the page can be developed without Node.js.
.PHONY: no-ui
no-ui:
	@echo "building the kubectl plugin without its page, which needs npm"

.PHONY: ui
ui: $(UI_PAGE)

.PHONY: test-ui
test-ui: deps-docs $(AXE) envtest kubectl-bpfman ## Test the page in a browser: each view in two widths and both color schemes, with a simulated cluster (UI_FLAGS), and with the cluster of KUBECONFIG if it is set.
	AXE=$(AXE) KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) KUBECTL_BPFMAN=$(LOCALBIN)/kubectl-bpfman go -C tests test -count=1 -timeout 30m $(UI_FLAGS) ./ui

.PHONY: bench-ui
bench-ui: deps-docs envtest kubectl-bpfman ## Measure the page with 5,000 nodes of 50 programs each, on a separate kube-apiserver.
	BPFMAN_BENCH_JSON=$(LOCALBIN)/bench.json KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) KUBECTL_BPFMAN=$(LOCALBIN)/kubectl-bpfman go -C tests test -count=1 -timeout 30m -run Scale -v ./ui
