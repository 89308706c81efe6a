# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# One target per image: docker build --target agent -t quay.io/bpfman/bpfman-agent .
# The one-node cluster builds the same images without an engine (hack/cluster/image).

# `make release` builds the images of a release without this file. GO_IMAGE has the toolchain of go.work.
ARG GO_IMAGE=docker.io/library/golang:1.26.8
ARG BASE_IMAGE=gcr.io/distroless/static-debian12

# The compiler runs on the build machine, for any target architecture.
FROM --platform=$BUILDPLATFORM $GO_IMAGE AS source
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go -C hack/release build -o /usr/local/bin/release .
ARG TARGETOS TARGETARCH
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOFLAGS="-trimpath -buildvcs=false -tags=grpcnotrace"

FROM source AS build-operator
ARG VERSION=latest
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C operator build -ldflags "-s -w -X github.com/bpfman/bpfman-operator/apis/version.Version=$VERSION" -o /out/ ./cmd/bpfman-operator && \
    release licences --out /licenses /out/bpfman-operator

FROM source AS build-agent
ARG VERSION=latest
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C agent build -ldflags "-s -w -X github.com/bpfman/bpfman-operator/apis/version.Version=$VERSION" -o /out/ ./cmd/bpfman-agent && \
    go -C agent build -ldflags "-s -w -X github.com/bpfman/bpfman-operator/apis/version.Version=$VERSION" -o /out/ ./cmd/bpfman-ns ./cmd/bpfman-probe && \
    go -C reader build -ldflags "-s -w -X github.com/bpfman/bpfman-operator/apis/version.Version=$VERSION" -o /out/ ./cmd/bpfman-reader && \
    release licences --out /licenses /out/bpfman-agent /out/bpfman-reader /out/bpfman-ns /out/bpfman-probe

FROM source AS build-csi
ARG VERSION=latest
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C csi build -ldflags "-s -w -X github.com/bpfman/bpfman-operator/apis/version.Version=$VERSION" -o /out/ ./cmd/bpfman-csi && \
    release licences --out /licenses /out/bpfman-csi

FROM source AS build-inspector
ARG VERSION=latest
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C inspector build -ldflags "-s -w -X github.com/bpfman/bpfman-operator/apis/version.Version=$VERSION" -o /out/ ./cmd/bpfman-inspector && \
    release licences --out /licenses /out/bpfman-inspector

# go-target keeps its symbols, because a uprobe is attached to one.
FROM source AS build-examples
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C examples build -ldflags "-s -w" -o /out/ ./cmd/counters ./cmd/map-exporter ./cmd/firewall && \
    go -C examples build -o /out/ ./cmd/go-target && \
    release licences --out /licenses /out/counters /out/map-exporter /out/firewall /out/go-target

FROM source AS build-node-probe
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C tests build -ldflags "-s -w" -o /out/ ./cmd/node-probe && \
    release licences --out /licenses /out/node-probe

FROM $BASE_IMAGE AS base
ARG VERSION=latest REVISION=unknown
LABEL org.opencontainers.image.source="https://github.com/bpfman/bpfman-operator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="The bpfman Community" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY LICENSE /licenses/LICENSE

FROM base AS operator
COPY --from=build-operator /licenses /licenses
COPY --from=build-operator /out/bpfman-operator /
USER 65532:65532
ENTRYPOINT ["/bpfman-operator"]

# Root, to open the daemon's socket and read /proc; its container drops all capabilities.
FROM base AS agent
COPY --from=build-agent /licenses /licenses
COPY --from=build-agent /out/bpfman-agent /out/bpfman-reader /out/bpfman-ns /out/bpfman-probe /
USER 0:0
ENTRYPOINT ["/bpfman-agent"]

# Root, to mount.
FROM base AS csi
COPY --from=build-csi /licenses /licenses
COPY --from=build-csi /out/bpfman-csi /
USER 0:0
ENTRYPOINT ["/bpfman-csi"]

# Root, to read all processes and what they have loaded.
FROM base AS inspector
COPY --from=build-inspector /licenses /licenses
COPY --from=build-inspector /out/bpfman-inspector /
USER 0:0
ENTRYPOINT ["/bpfman-inspector"]

FROM base AS counters
COPY --from=build-examples /licenses /licenses
COPY --from=build-examples /out/counters /
USER 65534:65534
ENTRYPOINT ["/counters"]

FROM base AS map-exporter
COPY --from=build-examples /licenses /licenses
COPY --from=build-examples /out/map-exporter /
USER 65534:65534
ENTRYPOINT ["/map-exporter"]

FROM base AS go-target
COPY --from=build-examples /licenses /licenses
COPY --from=build-examples /out/go-target /
USER 65534:65534
ENTRYPOINT ["/go-target"]

FROM base AS firewall
COPY --from=build-examples /licenses /licenses
COPY --from=build-examples /out/firewall /
USER 65534:65534
ENTRYPOINT ["/firewall"]

# Only for tests. Root, to inspect the node from within.
FROM base AS node-probe
COPY --from=build-node-probe /licenses /licenses
COPY --from=build-node-probe /out/node-probe /
USER 0:0
ENTRYPOINT ["/node-probe"]
