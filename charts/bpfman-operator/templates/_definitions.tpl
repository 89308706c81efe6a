{{- /* The cluster's definitions in bpfman.io without this project's mark, as a list: "taken" are those that upstream's v0.5
has too, and v0.6's clusterbpfapplications and clusterbpfapplicationstates, and with crds.bpfApplication=Namespaced, v0.6's
bpfapplications and bpfapplicationstates; "foreign" all others. As hack/install/install.sh sorts them. */ -}}
{{- define "bpfman.unmarked" -}}
{{- $cluster := list "bpfapplications" "bpfprograms" "clusterbpfapplications" "clusterbpfapplicationstates" "fentryprograms" "fexitprograms" "kprobeprograms" "tcprograms" "tcxprograms" "tracepointprograms" "uprobeprograms" "xdpprograms" }}
{{- $namespaced := list "bpfnsapplications" "bpfnsprograms" "tcnsprograms" "tcxnsprograms" "uprobensprograms" "xdpnsprograms" }}
{{- if eq .scope "Namespaced" }}
{{- $cluster = without $cluster "bpfapplications" }}
{{- $namespaced = concat $namespaced (list "bpfapplications" "bpfapplicationstates") }}
{{- end }}
{{- $found := list }}
{{- range (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "").items }}
{{- if and (eq .spec.group "bpfman.io") (ne (dig "metadata" "labels" "bpfman.io/owned-definition" "" .) "true") }}
{{- $known := has .spec.names.plural (ternary $namespaced $cluster (eq .spec.scope "Namespaced")) }}
{{- if eq $known (eq $.which "taken") }}
{{- $found = append $found (printf "%s (%s)" .metadata.name .spec.scope) }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}
