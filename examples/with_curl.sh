#!/bin/sh
# Swap a column of a Parquet file: with_curl.sh people.parquet released.parquet [address]
# The caller's key is in the variable ROWVEIL_API_KEY. curl 7.84 or later.
set -eu
source=$1 destination=$2 address=${3:-http://127.0.0.1:8080}
parquet=application/vnd.apache.parquet

credentials() { # the key, by a pipe: other users see a program's arguments
    printf 'header = "authorization: Bearer %s"\n' "${ROWVEIL_API_KEY:-}"
}
# Every call fails with what the service says is wrong: --fail-with-body, and the body on standard error.
call() {
    answer=$(credentials | curl --config - --silent --show-error --fail-with-body --globoff "$@") || { echo "$answer" >&2; exit 1; }
}
field() { # the first string of that name in the answer
    printf '%s' "$answer" | grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4
}

call -X POST -T "$source" -H "content-type: $parquet" "$address/v1/buffers"
buffer=$(field id)
trap 'credentials | curl --config - --silent -X DELETE "$address/v1/buffers/$buffer"' EXIT

call "$address/v1/services/CDSWAP" -H 'content-type: application/json' -H 'prefer: wait=60' -d '{
    "source": {"buffer": "'"$buffer"'"},
    "parameters": {"swap_fields": ["income"], "control_field": "town"}
}'
job=$(field id)
while state=$(field state); [ "$state" = queued ] || [ "$state" = running ]; do
    sleep 1
    call "$address/v1/jobs/$job"
done
[ "$state" = succeeded ] || { echo "$answer" >&2; exit 1; }
outcome=$(field outcome)

call -o "$destination" -H "accept: $parquet" "$address/v1/jobs/$job/rows"
echo "job $job: $outcome"
