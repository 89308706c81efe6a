// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package v1alpha1

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestGlobalDataInBothWrittenForms(t *testing.T) {
	var common BpfAppCommon
	written := `{"globaldata": {
		"base64": "DQwLCg==", "list": [13, 12, 11, 10], "none": [], "empty": "",
		"overflow": [256], "text": ["x"], "nested": [[1]], "number": 5, "null": null}}`
	if err := json.Unmarshal([]byte(written), &common); err != nil {
		t.Fatal(err)
	}
	want := GlobalData{
		"base64": {13, 12, 11, 10}, "list": {13, 12, 11, 10}, "none": {}, "empty": {},
		"overflow": nil, "text": nil, "nested": nil, "number": nil,
	}
	if !reflect.DeepEqual(common.GlobalData, want) {
		t.Errorf("got %#v, want %#v", common.GlobalData, want)
	}
}

func TestGlobalDataIsWrittenInBase64(t *testing.T) {
	b, err := json.Marshal(BpfAppCommon{GlobalData: map[string][]byte{"A": {1}}}.GlobalData)
	if err != nil || string(b) != `{"A":"AQ=="}` {
		t.Errorf("%s, %v", b, err)
	}
}

func FuzzGlobalData(f *testing.F) {
	f.Add([]byte(`{"base64": "DQwLCg==", "list": [13, 12], "none": [], "overflow": [256], "null": null}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, written []byte) {
		var once, again GlobalData
		if json.Unmarshal(written, &once) != nil {
			return
		}
		text, err := json.Marshal(once)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(once, again) {
			t.Errorf("%s becomes %s: %#v, then %#v, %v", written, text, once, again, err)
		}
	})
}

// Values stay as they are written, and null means that there is none.
func TestGlobals(t *testing.T) {
	var common BpfAppCommon
	written := `{"globals": {"number": 5, "text": "x", "list": [1, true], "large": 18446744073709551615, "null": null}}`
	if err := json.Unmarshal([]byte(written), &common); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(common.Globals)
	if want := `{"large":18446744073709551615,"list":[1,true],"number":5,"text":"x"}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	if err := json.Unmarshal([]byte(`{"globals": null}`), &common); err != nil || common.Globals != nil {
		t.Errorf("%v, %v", common.Globals, err)
	}
	if err := json.Unmarshal([]byte(`{"globals": [1]}`), &common); err == nil {
		t.Error("a list is accepted")
	}
}
