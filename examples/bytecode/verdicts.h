// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Copyright The bpfman-operator authors

// Verdicts that the kernel headers of older distributions lack.
#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

// Linux 6.6, enum tcx_action_base.
#define TCX_NEXT -1
#define TCX_PASS 0
#define TCX_DROP 2
