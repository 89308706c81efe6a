@rem SPDX-License-Identifier: Apache-2.0
@rem Copyright The bpfman-operator authors
@rem kubectl runs this from PATH when a shell on Windows completes `kubectl bpfman`.
@kubectl bpfman __complete %*
