#!/usr/bin/env bash
# Wakes the deployed demo several times, and sees that its ledger survives a redeploy.
#
#   DEMO_HOST=gateway.example.com scripts/smoke.sh                          before: tells the ledger's id
#   DEMO_HOST=gateway.example.com EXPECT_LEDGER=<id> scripts/smoke.sh       after: fails if it is another one
#
# More arguments go to `keywheel smoke`: --wakes 5 --every 20m --json. KEYWHEEL names another program than the one that is
# built here. Exit codes: 0 fine, 3 it did not wake, 4 the ledger is new.
set -euo pipefail

if [[ -z ${DEMO_HOST:-} ]]; then
    echo "smoke.sh: set DEMO_HOST to the host of a deployed gateway" >&2
    exit 2
fi
url=$DEMO_HOST
[[ $url == http://* || $url == https://* ]] || url=https://$url

smoke=(smoke "$url")
[[ -z ${EXPECT_LEDGER:-} ]] || smoke+=(--expect-ledger "$EXPECT_LEDGER")
if [[ -n ${KEYWHEEL:-} ]]; then
    exec "$KEYWHEEL" "${smoke[@]}" "$@"
fi
cd "$(dirname "$0")/.."
exec cargo run --quiet --release -p keywheel-cli -- "${smoke[@]}" "$@"
