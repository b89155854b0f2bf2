#!/bin/sh
# Rehearses a service in CI: the step of action.yml and of gitlab-ci.yml. Settings are variables:
#
#   APP         command line of the service, with {port} or PORT
#   REQUESTS    requests, one on each line, as --request takes them
#   MANIFEST    file with the manifest; empty: none
#   ARGS        more flags of lastcallctl rehearse service
#   LASTCALLCTL path of lastcallctl, with lastcall next to it
#   REPORTS     folder for rehearsal.txt, the table (default .)
set -eu
: "${APP:?must be the command line of the service}" "${REQUESTS:?must be requests, one on each line}"
reports=${REPORTS:-.}
mkdir -p "$reports"
set -f
# shellcheck disable=SC2086 # flags are separated by spaces
set -- ${ARGS:-}
[ -z "${MANIFEST:-}" ] || set -- -f "$MANIFEST" "$@"
while IFS= read -r request; do
    [ -z "$request" ] || set -- --request "$request" "$@"
done <<EOF
$REQUESTS
EOF
code=0
"${LASTCALLCTL:-lastcallctl}" rehearse service --app "$APP" "$@" > "$reports/rehearsal.txt" || code=$?
cat "$reports/rehearsal.txt"
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || printf '```\n%s\n```\n' "$(cat "$reports/rehearsal.txt")" >> "$GITHUB_STEP_SUMMARY"
exit "$code"
