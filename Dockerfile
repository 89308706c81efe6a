# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# One target per image: docker build --target agent -t quay.io/bpfman/bpfman-agent .
# The one-node cluster builds the same images without an engine (hack/cluster/image).

FROM --platform=$BUILDPLATFORM golang:1.26 AS source
ARG TARGETOS TARGETARCH
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOFLAGS="-trimpath -buildvcs=false -tags=grpcnotrace"
WORKDIR /src
COPY . .

FROM source AS build-operator
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C operator build -ldflags "-s -w" -o /out/ ./cmd/bpfman-operator

FROM source AS build-agent
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C agent build -ldflags "-s -w" -o /out/ ./cmd/bpfman-agent

FROM source AS build-csi
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C csi build -ldflags "-s -w" -o /out/ ./cmd/bpfman-csi

# go-target keeps its symbols: a uprobe is attached to one.
FROM source AS build-examples
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C examples build -ldflags "-s -w" -o /out/ ./cmd/counters && \
    go -C examples build -o /out/ ./cmd/go-target

FROM source AS build-node-probe
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go -C tests build -ldflags "-s -w" -o /out/ ./cmd/node-probe

FROM gcr.io/distroless/static-debian12 AS operator
COPY --from=build-operator /out/bpfman-operator /
USER 65532:65532
ENTRYPOINT ["/bpfman-operator"]

# Root, to open the daemon's socket and read /proc; its container drops all capabilities.
FROM gcr.io/distroless/static-debian12 AS agent
COPY --from=build-agent /out/bpfman-agent /
ENTRYPOINT ["/bpfman-agent"]

# Root, to mount.
FROM gcr.io/distroless/static-debian12 AS csi
COPY --from=build-csi /out/bpfman-csi /
ENTRYPOINT ["/bpfman-csi"]

FROM gcr.io/distroless/static-debian12 AS counters
COPY --from=build-examples /out/counters /
USER 65534:65534
ENTRYPOINT ["/counters"]

FROM gcr.io/distroless/static-debian12 AS go-target
COPY --from=build-examples /out/go-target /
USER 65534:65534
ENTRYPOINT ["/go-target"]

# For tests alone: root, to look at the node from within.
FROM gcr.io/distroless/static-debian12 AS node-probe
COPY --from=build-node-probe /out/node-probe /
ENTRYPOINT ["/node-probe"]
