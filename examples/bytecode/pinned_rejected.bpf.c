// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// The kernel's verifier rejects this program, because it writes behind the value.
#define VALUE_SIZE 104
#define WRITTEN VALUE_SIZE
#include "pinned.h"
