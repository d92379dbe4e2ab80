#!/bin/bash
# Exit status 0 when a Tactus on this machine answers GET /health (or the path given) with 200 within 4 s:
# healthcheck.sh [PATH] [PORT]. The port defaults to TACTUS_PORT, then 8000. Needs only bash.
set -u
trap '' PIPE   # a server that closes early may have answered
path=${1:-/health}
port=${2:-${TACTUS_PORT:-8000}}
fail() { echo "health: $1" >&2; exit 1; }
{ exec 3<> "/dev/tcp/127.0.0.1/$port"; } 2> /dev/null || fail "nothing listens on port $port"
printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$path" >&3 2> /dev/null
IFS=' ' read -r -t 4 version status _ <&3 || fail "no answer within 4 s on port $port"
[ "$version" = HTTP/1.1 ] || fail "no HTTP on port $port"
[ "$status" = 200 ] || fail "$path on port $port: status $status"
