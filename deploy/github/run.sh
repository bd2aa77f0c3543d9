#!/usr/bin/env bash
# One run as action.yml asks for it by variables; ends with the exit code of `tidegauge run`.
set -u
mkdir -p "$FOLDER"
# Files of an earlier step must not pass for those of this one. Its report may be the baseline.
new="$FOLDER/report.new.json"
rm -f "$new" "$FOLDER/report.md" "$FOLDER/junit.xml" "$FOLDER/benchmark.json"
[ "${BASELINE:-}" -ef "$FOLDER/report.json" ] || rm -f "$FOLDER/report.json"
# Words of ARGUMENTS are arguments: whoever writes the workflow writes them.
# shellcheck disable=SC2206
arguments=("$WORKLOAD" --pipeline "$PIPELINE" ${ARGUMENTS:-})
while IFS= read -r line; do
    [ -z "${line//[[:space:]]/}" ] || arguments+=(--threshold "$line")
done <<<"${THRESHOLDS:-}"
[ -z "${BASELINE:-}" ] || arguments+=(--baseline "$BASELINE")
"$ROOT/tidegauge" run "${arguments[@]}" --report "$new" \
    --markdown "$FOLDER/report.md" --junit "$FOLDER/junit.xml" --benchmark "$FOLDER/benchmark.json"
code=$?
rm -f "$FOLDER/report.json"
report=""
if [ -f "$new" ]; then
    report="$FOLDER/report.json"
    mv "$new" "$report"
fi
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$FOLDER/report.md" ]; then
    cat "$FOLDER/report.md" >>"$GITHUB_STEP_SUMMARY"
fi
if [ -n "${GITHUB_OUTPUT:-}" ]; then
    printf 'code=%s\nreport=%s\n' "$code" "$report" >>"$GITHUB_OUTPUT"
fi
exit "$code"
