# The documentation: its site, and its language.

##@ Documentation

# The site's builder is a Python program. hack/docs/requirements.txt pins versions and hashes.
PYTHON ?= python3
DOCS_VENV := $(LOCALBIN)/docs-venv
MKDOCS := NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs
# hack/docs/content.py adds them to the site.
docs docs-serve docs-publish: export SCHEMAS := $(SCHEMAS)

$(DOCS_VENV)/bin/mkdocs: hack/docs/requirements.txt
	@rm -rf $(DOCS_VENV)
	@$(PYTHON) -m venv $(DOCS_VENV) || { echo "Python's venv is needed: make deps-docs installs it" >&2; exit 1; }
	@echo "installing the site's builder"
	@$(DOCS_VENV)/bin/pip install -q --disable-pip-version-check --only-binary :all: --require-hashes -r $<
	@touch $@

.PHONY: docs-serve
docs-serve: $(DOCS_VENV)/bin/mkdocs schemas ## Show the documentation's site at http://127.0.0.1:8000, with edits as they are saved (DOCS_ADDRESS).
	$(MKDOCS) serve --dev-addr $(DOCS_ADDRESS)

DOCS_ADDRESS ?= 127.0.0.1:8000

# mike stores the site of each version in a separate directory of the branch, for the version selector.
DOCS_VERSION ?= dev
DOCS_ALIASES ?=
DOCS_PUSH ?= git push origin gh-pages

.PHONY: docs-publish
docs-publish: $(DOCS_VENV)/bin/mkdocs schemas ## Add this version's site to the branch gh-pages and push it (DOCS_VERSION, DOCS_ALIASES, DOCS_REF). With DOCS_PUSH= it isn't pushed.
	PATH="$(DOCS_VENV)/bin:$$PATH" NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases $(DOCS_VERSION) $(DOCS_ALIASES)
	$(if $(DOCS_ALIASES),PATH="$(DOCS_VENV)/bin:$$PATH" mike set-default $(firstword $(DOCS_ALIASES)))
	hack/docs/not-found.sh $(DOCS_VERSION)
	$(DOCS_PUSH)

.PHONY: docs-names
docs-names: build-release ## Give the images and files in the pages the names of the release of VERSION at REGISTRY; this changes the pages.
	@sed -i -f <($(RELEASE) names $(OF_RELEASE) --layout ""; echo 's|https://github.com/bpfman/bpfman-operator|$(SOURCE)|g') $$(git ls-files 'docs/*.md')

.PHONY: docs-requirements
docs-requirements: ## Pin the packages of the site's builder, with hashes, from hack/docs/requirements.in.
	$(PYTHON) -m venv $(LOCALBIN)/pip-tools && $(LOCALBIN)/pip-tools/bin/pip install -q pip-tools
	cd hack/docs && $(LOCALBIN)/pip-tools/bin/pip-compile -q --upgrade --generate-hashes --strip-extras --allow-unsafe --no-emit-find-links --no-emit-index-url --no-header -o requirements.txt requirements.in

.PHONY: deps-docs
deps-docs: ## Install what test-docs needs: Python's venv, and Chromium (as root).
	@hack/docs/deps.sh

AXE := $(LOCALBIN)/axe/axe_playwright_python/axe.min.js

$(AXE): hack/docs/axe.txt | $(DOCS_VENV)/bin/mkdocs
	@$(DOCS_VENV)/bin/pip install -q --disable-pip-version-check --only-binary :all: --no-deps --require-hashes --upgrade --target $(LOCALBIN)/axe -r $<
	@touch $@

.PHONY: test-docs
test-docs: deps-docs docs $(AXE) ## Test each page of the documentation's site in a browser: narrow and wide, light and dark, and the search.
	SITE=$(LOCALBIN)/site AXE=$(AXE) go -C hack/docs test -count=1 -timeout 30m ./site

# This includes the API reference, and therefore checks the API's comments too.
PAGES = $(shell git ls-files --cached --others --exclude-standard '*.md' ':!hack/vale')
# Go files with comments that are written by hand.
COMMENTS = $(shell git ls-files --cached --others --exclude-standard '*.go' ':!apis/client' ':!*zz_generated*' ':!*.pb.go')
VALE = $(LOCALBIN)/vale --config hack/vale/vale.ini

.PHONY: prose
prose: $(LOCALBIN)/vale ## Check the language of the documentation and of comments in Go (vale, configured in hack/vale).
	@found=$$($(VALE) --minAlertLevel=suggestion --output=line --no-exit hack/vale/wrong.md); for rule in hack/vale/styles/bpfman/*.yml; do \
		grep -q "bpfman.$$(basename $$rule .yml):" <<<"$$found" || { echo "$$rule finds nothing in hack/vale/wrong.md" >&2; exit 1; }; done
	@$(VALE) $(PAGES) $(wildcard $(COMMENTS))
