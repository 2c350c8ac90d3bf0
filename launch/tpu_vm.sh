#!/usr/bin/env bash
# Runs specjax.run on a Cloud TPU VM where this checkout lies in ~/specjax.
# TPU is the VM's name, ZONE its zone; arguments go to specjax.run.
set -euo pipefail
: "${TPU:?set TPU to the name of the TPU VM}" "${ZONE:?set ZONE to its zone}"
exec gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=0 \
  --command="cd ~/specjax && python -m specjax.run$(printf ' %q' "$@")"
