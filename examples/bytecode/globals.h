// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// The globals that the sample objects set. The loader writes them before the verifier
// runs, so they are constants in the program.
#pragma once

#include <linux/types.h>

volatile const __u8 GLOBAL_u8 = 0;
volatile const __u32 GLOBAL_u32 = 0;
