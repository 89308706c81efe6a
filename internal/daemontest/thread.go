// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package daemontest

import "runtime"

// OnOwnThread runs f on a thread that ends with it. Nothing else is affected if f changes
// the thread's namespaces.
func OnOwnThread(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		f()
	}()
	<-ended
}
