// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package event emits Events, and makes sure that their full text reaches the user. The operator and the agent use
// it.
package event

import (
	"fmt"
	"hash/fnv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/bpfman/bpfman-operator/apis/shorten"
)

// maxNote is the limit that the API has for an Event's note, in bytes.
const maxNote = 1024

// Recorder emits Events. It is client-go's events.EventRecorder, whose package imports the types of all Kubernetes APIs.
type Recorder interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Emit emits an Event about an object. eventType is corev1.EventTypeNormal or corev1.EventTypeWarning.
//
// The recorder aggregates Events that differ only in their note, and keeps the first note. The error of a second
// node would therefore never be visible. To keep them apart, Emit adds a hash of the note to the action, which
// kubectl doesn't show.
func Emit(recorder Recorder, about runtime.Object, eventType, reason, action, note string) {
	// kubectl shows an Event on one line.
	note = shorten.Middle(strings.ReplaceAll(note, "\n", "; "), maxNote)
	hash := fnv.New32a()
	hash.Write([]byte(note))
	recorder.Eventf(about, nil, eventType, reason, fmt.Sprintf("%s-%08x", action, hash.Sum32()), "%s", note)
}
