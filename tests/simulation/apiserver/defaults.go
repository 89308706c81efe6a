// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import "k8s.io/apimachinery/pkg/runtime"

func addDefaults(*runtime.Scheme) {}
