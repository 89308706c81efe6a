// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package apiserver

import "k8s.io/apiserver/pkg/registry/rest"

func (b *builtin) deleter() rest.GracefulDeleter { return b.main }
