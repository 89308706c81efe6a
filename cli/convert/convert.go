// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package convert converts objects of upstream bpfman-operator's API at v0.6.0 that this
// project doesn't serve. A BpfApplication, which is namespaced in upstream's API, becomes a
// BpfNsApplication. For each field that can't be converted, there is a finding. A
// ClusterBpfApplication stays as it is.
package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
)

// Finding describes a field that the conversion changes.
type Finding struct {
	// Object is the kind and name of the object.
	Object string
	// Path is the path of the field in the object. It is empty if the finding is about
	// the whole object.
	Path string
	// Lost means that the output lacks something that the user wrote.
	Lost    bool
	Message string
}

// String returns the finding as a line of text.
func (f Finding) String() string {
	severity := "note"
	if f.Lost {
		severity = "lost"
	}
	path := f.Path
	if path != "" {
		path += ": "
	}
	return severity + ": " + f.Object + ": " + path + f.Message
}

// Result is the result of a conversion.
type Result struct {
	// Objects are the objects to apply, in the order of the input. Objects of other
	// kinds are unchanged.
	Objects  []any
	Findings []Finding
}

// Lost reports whether the conversion loses something.
func (r Result) Lost() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Lost })
}

// Convert converts objects. The error names each object that can't be converted.
func Convert(objects []Object) (Result, error) {
	var out Result
	var errs []error
	for _, o := range objects {
		if err := out.add(o); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.Source, err))
		}
	}
	return out, errors.Join(errs...)
}

// add converts one object.
func (r *Result) add(o Object) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Spec map[string]json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(o.JSON, &head); err != nil {
		return fmt.Errorf("not a Kubernetes object: %w", inWords(err))
	}
	name := head.Kind + " " + strings.TrimPrefix(head.Metadata.Namespace+"/"+head.Metadata.Name, "/")
	group, version, _ := strings.Cut(head.APIVersion, "/")
	_, ours := head.Spec["bytecode"]
	switch {
	case group != v1alpha1.SchemeGroupVersion.Group:
	case head.Kind == kindApplication && !ours:
		if version != v1alpha1.SchemeGroupVersion.Version {
			return fmt.Errorf("%s: apiVersion %s isn't upstream's v0.6, which is %s", name, head.APIVersion, v1alpha1.SchemeGroupVersion)
		}
		if _, selects := head.Spec["nodeSelector"]; !selects && len(head.Spec) > 0 {
			return fmt.Errorf("%s: spec.nodeSelector: required", name)
		}
		return r.application(name, o.JSON)
	case head.Kind == kindConfig:
		r.Findings = append(r.Findings, Finding{name, "", true, "not converted: the settings are those of ConfigMap bpfman-config"})
		return nil
	case strings.HasSuffix(head.Kind, "ApplicationState"):
		r.Findings = append(r.Findings, Finding{name, "", false, "left out: the agents write new reports, as BpfPrograms"})
		return nil
	}
	var asItWas map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.JSON, &asItWas); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	r.Objects = append(r.Objects, asItWas)
	return nil
}

// application converts a BpfApplication.
func (r *Result) application(name string, raw []byte) error {
	var in upstreamApplication
	unknown, err := kjson.UnmarshalStrict(raw, &in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, inWords(err))
	}
	c := &conversion{object: name}
	for _, u := range unknown {
		c.lost("", u.Error()+" isn't part of upstream's v0.6 API")
	}
	members := c.programs(in.Spec.Programs)
	meta, common := c.metadata(in.Metadata), c.common(in.Spec, in.Metadata.Namespace)
	if len(in.Status) > 0 {
		c.note("status", "left out: the operator writes a new status")
	}
	if err := errors.Join(c.errs...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	apiVersion := v1alpha1.SchemeGroupVersion.String()
	out := &v1alpha1.BpfNsApplication{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: "BpfNsApplication"}, ObjectMeta: meta}
	out.Spec.BpfAppCommon = common
	for _, m := range members {
		program, err := namespaced(m)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out.Spec.Programs = append(out.Spec.Programs, program)
	}
	r.Objects = append(r.Objects, out)
	r.Findings = append(r.Findings, c.findings...)
	return nil
}

// conversion is the conversion of one object.
type conversion struct {
	object   string
	findings []Finding
	errs     []error
}

func (c *conversion) lost(path, message string) {
	c.findings = append(c.findings, Finding{c.object, path, true, message})
}

func (c *conversion) note(path, message string) {
	c.findings = append(c.findings, Finding{c.object, path, false, message})
}

func (c *conversion) fail(path, message string) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", path, message))
}

// lastApplied is kubectl apply's copy of the object. It contains the old kind.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// metadata keeps what users set. It drops what the API server sets, such as the UID,
// because that belongs to the old object.
func (c *conversion) metadata(in metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name, GenerateName: in.GenerateName, Labels: in.Labels}
	if annotations := maps.Clone(in.Annotations); annotations != nil {
		delete(annotations, lastApplied)
		if len(annotations) > 0 {
			out.Annotations = annotations
		}
	}
	for i, owner := range in.OwnerReferences {
		c.lost(fmt.Sprintf("metadata.ownerReferences[%d]", i), fmt.Sprintf("%s %s created the object, and manages upstream's kind, not this one", owner.Kind, owner.Name))
	}
	for i, finalizer := range in.Finalizers {
		if !strings.HasPrefix(finalizer, "bpfman.io.") {
			c.lost(fmt.Sprintf("metadata.finalizers[%d]", i), finalizer+" belongs to the controller of upstream's object")
		}
	}
	if in.DeletionTimestamp != nil {
		c.note("metadata.deletionTimestamp", "the object is being deleted; the converted object isn't")
	}
	return out
}

func (c *conversion) common(in v1alpha1.ClusterBpfApplicationSpec, namespace string) v1alpha1.BpfAppCommon {
	for name, value := range in.GlobalData {
		if value == nil {
			c.fail("spec.globalData", name+" is neither base64 nor a list of bytes")
		}
	}
	if b := in.ByteCode; (b.Image == nil) == (b.Path == nil) {
		c.fail("spec.byteCode", "exactly one of image and path is required")
	} else if b.Image != nil && b.Image.ImagePullSecret != nil && b.Image.ImagePullSecret.Namespace != namespace {
		c.lost("spec.byteCode.image.imagePullSecret.namespace", fmt.Sprintf(
			"a BpfNsApplication can only use a Secret of its own namespace: copy Secret %s from namespace %q, and set the field to the namespace with the copy",
			b.Image.ImagePullSecret.Name, b.Image.ImagePullSecret.Namespace))
	}
	if s := in.MapOwnerSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		c.lost("spec.mapOwnerSelector", "upstream's v0.6 ignores it; to share maps, give the members a mapownerselector for the labels of a BpfProgram")
	}
	return (&v1alpha1.ClusterBpfApplication{Spec: in}).GetAppCommon()
}
