#!/bin/sh
# Make the passwords that compose.yaml reads from files; those that are there stay.
#
# The folder is closed to others. The files are not: a container reads them as its own user, and
# Compose mounts a file with the owner and mode that it has here.
set -eu
folder=$(CDPATH='' cd "$(dirname "$0")" && pwd)/secrets
mkdir -p "$folder"
chmod 700 "$folder"
for name in kafka kafka_broker clickhouse_server clickhouse_reader clickhouse_admin grafana_admin; do
    [ -s "$folder/$name" ] && continue
    head -c 24 /dev/urandom | base64 | tr -d '\n=' | tr '+/' '-_' >"$folder/$name"
    chmod 644 "$folder/$name"
    echo "made $folder/$name"
done
