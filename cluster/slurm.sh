#!/usr/bin/env bash
# A Ray cluster inside one Slurm job, and a study on it: sbatch cluster/slurm.sh FILE [OPTIONS OF ablate study]
# Run it again to go on: what is finished is in the store. The store and --checkpoint-dir must be on a shared file system, or
# the store a PostgreSQL URL. Change the header to what your site has.
#SBATCH --job-name=ablate
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gpus-per-task=1
#SBATCH --time=24:00:00
#SBATCH --signal=B:INT@120
set -euo pipefail

port=6379
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)
address="$head:$port"
resources=(--num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus "${SLURM_GPUS_ON_NODE:-0}" --disable-usage-stats --block)

srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap ray start --head --port="$port" "${resources[@]}" &
until srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap ray status --address="$address" >/dev/null 2>&1; do
  sleep 2
done
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
  srun --nodes="$((SLURM_JOB_NUM_NODES - 1))" --ntasks-per-node=1 --exclude="$head" --overlap \
    ray start --address="$address" "${resources[@]}" &
fi

# Slurm's signal before the time is up stops the study in good order; submitted again, the job goes on.
srun --nodes=1 --ntasks=1 --nodelist="$head" --overlap \
  ablate study "$@" --engine ray --address "$address" &
study=$! interrupted=
trap 'interrupted=yes; kill -INT "$study"' INT TERM
code=0
wait "$study" || code=$?
if [ -n "$interrupted" ]; then # the trap ended the first wait; the study is still putting its things away
  code=0
  wait "$study" || code=$?
fi
exit "$code"
