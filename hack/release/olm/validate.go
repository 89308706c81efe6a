// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package olm

import (
	"errors"
	"fmt"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	validationerrors "github.com/operator-framework/api/pkg/validation/errors"
	validator "github.com/operator-framework/api/pkg/validation/interfaces"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// validators are those of opm and operator-sdk that need neither images nor a container engine, and that aren't
// deprecated.
var validators = append(validator.Validators{
	validation.OperatorHubV2Validator,
	validation.StandardCapabilitiesValidator,
	validation.StandardCategoriesValidator,
	validation.ObjectValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
}, validation.DefaultBundleValidators...)

// Validate returns what OLM, OperatorHub, or a console wouldn't accept in a bundle, or warns about.
func Validate(dir string) error {
	bundle, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		return fmt.Errorf("read bundle %s: %w", dir, err)
	}
	var problems []error
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, problem := range append(result.Errors, result.Warnings...) {
			// Users don't write reports, so there are no examples.
			if kind, isKind := problem.BadValue.(schema.GroupVersionKind); isKind && isReport(kind.Kind) && problem.Level == validationerrors.LevelWarn {
				continue
			}
			problems = append(problems, problem)
		}
	}
	return errors.Join(problems...)
}
