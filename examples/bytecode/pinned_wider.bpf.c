// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

#define VALUE_SIZE 104
#include "pinned.h"
