# SPDX-License-Identifier: Apache-2.0
# Copyright The bpfman-operator authors
#
# A file-based catalog, which `make catalog` writes: docker build -f catalog.Dockerfile bin/catalog
ARG OPM_IMAGE=quay.io/operator-framework/opm:v1.62.0
FROM $OPM_IMAGE
COPY configs /configs
LABEL operators.operatorframework.io.index.configs.v1=/configs
ENTRYPOINT ["/bin/opm"]
CMD ["serve", "/configs"]
