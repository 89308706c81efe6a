# The page of `kubectl bpfman ui`, which the plugin contains.

##@ Page

UI := cli/ui/page
UI_PAGE := $(UI)/dist/index.html
UI_SOURCES := $(filter-out %/views.ts,$(wildcard $(UI)/src/*))

$(UI)/node_modules/.package-lock.json: $(UI)/package.json $(UI)/package-lock.json
	@command -v npm >/dev/null || { echo "Node.js and npm are needed to build the page: make deps installs them" >&2; exit 1; }
	npm --prefix $(UI) ci --silent
	@touch $@

# The types of what the server sends.
$(UI)/src/views.ts: $(wildcard cli/ui/view/*.go cli/ui/typescript/*.go cli/why/page.go cli/inventory/*.go internal/live/*.go apis/v1alpha1/bpfnode.go)
	go -C cli run ./ui/typescript >$@.new && mv $@.new $@

$(UI_PAGE): $(UI)/node_modules/.package-lock.json $(UI)/src/views.ts $(UI_SOURCES) $(UI)/build.mjs $(UI)/tsconfig.json
	npm --prefix $(UI) run --silent check
	npm --prefix $(UI) run --silent build

.PHONY: ui
ui: $(UI_PAGE) ## Build the page of `kubectl bpfman ui`. `make kubectl-bpfman` contains it.

.PHONY: test-ui
test-ui: deps-docs $(AXE) envtest kubectl-bpfman ## Test the page in a browser: each view, narrow and wide, light and dark, with a simulated cluster (UI_FLAGS), and with the cluster of KUBECONFIG if it is set.
	AXE=$(AXE) KUBEBUILDER_ASSETS=$(ENVTEST_ASSETS) KUBECTL_BPFMAN=$(LOCALBIN)/kubectl-bpfman go -C tests test -count=1 -timeout 30m $(UI_FLAGS) ./ui
