#!/usr/bin/env bash
#SBATCH --job-name=specjax
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=04:00:00
# One GPU of one node; arguments go to specjax.run. A killed run continues when
# the same command is submitted again.
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/..}"
exec srun python -m specjax.run "$@"
