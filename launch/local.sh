#!/usr/bin/env bash
# One process on this machine; arguments go to specjax.run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec python -m specjax.run "$@"
