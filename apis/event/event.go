// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package event emits Events whose text arrives. The operator and the agent use it.
package event

import (
	"fmt"
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/bpfman/bpfman-operator/apis/shorten"
)

// maxNote is the API's limit.
const maxNote = 1024

// Emit emits an Event about an object. eventType is corev1's EventTypeNormal or EventTypeWarning.
//
// The recorder counts Events that differ in their note alone as one, and shows the first note for all of them: another
// node's error would never be seen. A hash of the note in the action, which users don't see, keeps them apart.
func Emit(recorder events.EventRecorder, about runtime.Object, eventType, reason, action, note string) {
	// Events are of one line.
	note = shorten.Middle(strings.ReplaceAll(note, "\n", "; "), maxNote)
	hash := fnv.New32a()
	hash.Write([]byte(note))
	recorder.Eventf(about, nil, eventType, reason, fmt.Sprintf("%s-%08x", action, hash.Sum32()), "%s", note)
}
