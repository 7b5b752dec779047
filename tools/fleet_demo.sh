#!/usr/bin/env bash
# `make fleet-demo`: a fleet of three simulated boards on this machine. Sets up, measures, shows, collects, takes all of it away.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-.venv/bin/python}
export PATH=$PATH:/usr/sbin
missing=()
for program in munged slurmctld slurmd sbatch ssh sshd ssh-keygen flock; do
    command -v $program > /dev/null || missing+=("$program")
done
[ ${#missing[@]} -eq 0 ] || {
    echo "fleet-demo: not installed: ${missing[*]}; on Debian and Ubuntu: apt-get install slurm-wlm munge openssh-server" >&2
    exit 1
}
echo "installed here, and used: $(slurmctld -V), $(munged -V | head -n 1), $(sshd -V 2>&1 | grep -o 'OpenSSH[^,]*' | head -n 1)"
echo "the demo itself installs nothing; it starts an sshd a board, munged, slurmctld and slurmd on loopback, and ends them"

base=$(mktemp -d /tmp/fleet-demo-XXXXXX) # a short path that munge's socket fits into
chmod 755 "$base"
lab=$base/lab
jetwatt() { "$PYTHON" -m jetwatt "$@"; }
leave() {
    local code=$?
    trap - EXIT INT TERM
    echo
    echo "taking all of it away"
    [ ! -e "$lab/fleet/slurm.conf" ] || SLURM_CONF=$lab/fleet/slurm.conf timeout 10 scancel --user "$(id -un)" 2> /dev/null || true
    for _ in $(seq 20); do
        [ -n "$(SLURM_CONF=$lab/fleet/slurm.conf timeout 10 squeue -h 2> /dev/null)" ] || break
        sleep 0.5
    done
    [ ! -e "$lab/fleet/run/daemons.pid" ] || { kill "$(< "$lab/fleet/run/daemons.pid")" && wait; } 2> /dev/null || true
    [ ! -d "$lab" ] || tools/simulated_lab.sh stop "$lab"
    for signal in 0 9 0; do # a step whose slurmctld is gone would tell it for long
        left=
        for process in $(grep -lza -- "$lab" /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2> /dev/null | cut -d / -f 3 | sort -u); do
            [ "$process" = $$ ] || ! kill -$signal "$process" 2> /dev/null || left="$left $process"
        done
        [ -n "$left" ] || break
        sleep 1
    done
    [ -z "$left" ] || { echo "fleet-demo: these still run:$left" >&2; code=1; }
    rm -rf "$base"
    exit $code
}
trap leave EXIT
trap 'exit 130' INT TERM

step() { printf '\n=== %s\n' "$*"; }
pythons=()
for version in 3.8 3.10 3.12; do
    own=$PWD/.venv-board-$version/bin/python
    [ -x "$own" ] && pythons+=("$own") || pythons+=("$(cd "$(dirname "$PYTHON")" && pwd)/$(basename "$PYTHON")")
done
step "three boards: $(for python in "${pythons[@]}"; do "$python" -c 'import platform; print("Python", platform.python_version(), end="; ")'; done)"
LAB=$'check_seconds = 10\nrequeue_seconds = 5\nfree_mb = 50\nslice_minutes = 1\nreboot_seconds = 120' \
    tools/simulated_lab.sh make "$lab" "${pythons[@]}"
cat "$lab/lab.toml"
export JETWATT_LAB=$lab/lab.toml
step "jetwatt fleet init lab.toml"
jetwatt fleet init "$JETWATT_LAB"
setsid "$lab/fleet/bin/daemons" < /dev/null > "$lab/daemons.out" 2>&1 &
for _ in $(seq 60); do # until every board has said that it is there
    [ "$(jetwatt fleet status 2> /dev/null | grep -c ' idle ')" -ne 3 ] || break
    sleep 1
done
pool=sim-orin-agx-jp6
step "jetwatt fleet submit --pool $pool -- benchmarks/test_training.py --workload resnet18-imagenet,lenet-mnist --power-mode sample:20,mode_15w"
jetwatt fleet submit --pool $pool --case-seconds 4 -- benchmarks/test_training.py --workload resnet18-imagenet,lenet-mnist \
    --power-mode sample:20,mode_15w --minibatches 40
step "jetwatt fleet status"
sleep 15
jetwatt fleet status
step "until every slice is done"
while :; do
    status=$(jetwatt fleet status)
    grep -qE '[0-9]+ (running|waiting)' <<< "$status" || break
    tail -n 1 <<< "$status"
    sleep 5
done
jetwatt fleet status
step "jetwatt fleet collect --out night.sqlite, twice"
jetwatt fleet collect --out "$lab/night.sqlite"
jetwatt fleet collect --out "$lab/night.sqlite"
step "jetwatt results info night.sqlite"
jetwatt results info "$lab/night.sqlite"
