{{- define "tollgate.name" -}}
{{- if contains "tollgate" .Release.Name }}{{ .Release.Name | trunc 57 | trimSuffix "-" }}{{ else }}{{ printf "%s-tollgate" .Release.Name | trunc 57 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "tollgate.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}{{ default (include "tollgate.name" .) .Values.serviceAccount.name }}{{ else }}{{ default "default" .Values.serviceAccount.name }}{{ end }}
{{- end }}

{{- define "tollgate.selector" -}}
app.kubernetes.io/name: tollgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The configuration as a mapping. References are replaced first: in a flow mapping YAML would take their braces for its own. */}}
{{- define "tollgate.config" -}}
{{- $config := regexReplaceAll "\\$\\{[^}\\n]*\\}" .Values.config "reference" | fromYaml }}
{{- with $config.Error }}{{ fail (printf "config is not YAML: %s" .) }}{{ end }}
{{- toYaml $config }}
{{- end }}

{{/* A port of the configuration: (list CONFIG SECTION DEFAULT). The listener must be reachable from outside of the pod. */}}
{{- define "tollgate.port" -}}
{{- $section := index (index . 0) (index . 1) | default dict }}
{{- $host := $section.host | default "127.0.0.1" | toString }}
{{- if has $host (list "127.0.0.1" "localhost" "::1") }}{{ fail (printf "config: %s.host is %s, which nobody outside of the pod reaches; set it to 0.0.0.0" (index . 1) $host) }}{{ end }}
{{- $port := $section.port | default (index . 2) | int }}
{{- if or (lt $port 1) (gt $port 65535) }}{{ fail (printf "config: %s.port has to be a number" (index . 1)) }}{{ end }}
{{- $port }}
{{- end }}

{{/* Whole seconds of a duration of the configuration, rounded up: (list TEXT FIELD). */}}
{{- define "tollgate.seconds" -}}
{{- $text := index . 0 | toString }}
{{- if not (regexMatch "^[0-9]+(ms|s|m|h)$" $text) }}{{ fail (printf "config: %s has to be a duration such as 60s" (index . 1)) }}{{ end }}
{{- $number := regexFind "^[0-9]+" $text | int }}
{{- if hasSuffix "ms" $text }}{{ div (add $number 999) 1000 }}{{ else if hasSuffix "h" $text }}{{ mul $number 3600 }}{{ else if hasSuffix "m" $text }}{{ mul $number 60 }}{{ else }}{{ $number }}{{ end }}
{{- end }}

{{/* preStop, delay and timeout of the drain, 5 s for use that is still to be stored, and some to spare. */}}
{{- define "tollgate.grace" -}}
{{- $drain := (include "tollgate.config" . | fromYaml).drain | default dict }}
{{- add .Values.preStopSeconds (include "tollgate.seconds" (list (default "0s" $drain.delay) "drain.delay")) (include "tollgate.seconds" (list (default "30s" $drain.timeout) "drain.timeout")) 20 }}
{{- end }}
