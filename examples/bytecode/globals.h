// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// The globals that the sample objects set. Constants to the program, they are
// written by the loader before the verifier sees them.
#pragma once

#include <linux/types.h>

volatile const __u8 GLOBAL_u8 = 0;
volatile const __u32 GLOBAL_u32 = 0;
