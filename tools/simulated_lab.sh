#!/usr/bin/env bash
# A lab of simulated boards on this machine, for tests and `make fleet-demo`: an sshd on a loopback port for each, with a
# Python, a boot, locks and saved states of its own. Nothing is installed, and nothing is left once it is stopped.
#   simulated_lab.sh make FOLDER PYTHON...    a board for each Python: writes FOLDER/lab.toml, starts their sshd
#   simulated_lab.sh start|cut FOLDER/BOARD   switch a board on; take its power away, with all its processes
#   simulated_lab.sh reboot FOLDER/BOARD MODE
#   simulated_lab.sh stop FOLDER              take all their power away
# NETWORKS=yes gives each board a network namespace, so that its packets can be dropped (needs root); PORT is the first port,
# LAB further lines of lab.toml.
set -euo pipefail
SUITE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
SSHD=$(PATH=$PATH:/usr/sbin command -v sshd)
: "${NETWORKS:=no}" "${PORT:=$((20000 + RANDOM % 20000))}" "${LAB:=}"

make() {
    local folder=$1 number=0 python
    shift
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    ssh-keygen -q -t ed25519 -N '' -C simulated-lab -f "$folder/id"
    printf 'port = %s\nidentity = "id"\nknown_hosts = "known_hosts"\n%s\n' "$PORT" "$LAB" > "$folder/lab.toml"
    for python in "$@"; do
        number=$((number + 1))
        board "$folder" $number "$python"
    done
}

board() { # board FOLDER NUMBER PYTHON
    local folder=$1 number=$2 python=$3 address=127.0.0.1 port=$((PORT + 100 + $2)) namespace= here
    here=$folder/board$number
    mkdir -p "$here/root/proc/sys/kernel/random" "$here/locks" "$here/state" "$here/work"
    [ "$NETWORKS" = no ] || {
        namespace=jw$((PORT % 10000))x$number
        address=10.213.$number.2
        ip netns add "$namespace"
        ip link add "$namespace" type veth peer name eth0 netns "$namespace"
        ip addr add "10.213.$number.1/30" dev "$namespace"
        ip link set "$namespace" up
        ip -n "$namespace" addr add "$address/30" dev eth0
        ip -n "$namespace" link set eth0 up
        ip -n "$namespace" link set lo up
    }
    printf 'namespace=%q\n' "$namespace" > "$here/settings"
    ssh-keygen -q -t ed25519 -N '' -C "board$number" -f "$here/host_key"
    echo "[$address]:$port $(cut -d ' ' -f 1,2 "$here/host_key.pub")" >> "$folder/known_hosts"
    echo maxn > "$here/mode"
    cat > "$here/sshd_config" <<- EOF
		ListenAddress $address
		Port $port
		HostKey $here/host_key
		PidFile $here/sshd.pid
		AuthorizedKeysFile $folder/id.pub
		StrictModes no
		UsePAM no
		PasswordAuthentication no
		MaxStartups 100
		ClientAliveInterval 15
		ClientAliveCountMax 3
		SetEnv HOME=$here SIMULATED_BOARD=$here JETWATT_LOCK_DIR=$here/locks XDG_STATE_HOME=$here/state PYTHONPYCACHEPREFIX=$folder/pycache
	EOF
    cat >> "$folder/lab.toml" <<- EOF
		[[board]]
		name = "board$number"
		type = "sim:orin-agx@$number"
		jetpack = "6.2"
		ssh = "$(id -un)@$address"
		port = $port
		folder = "$SUITE"
		python = "$python"
		work = "$here/work"
		root = "$here/root"
		modes = ["maxn", "mode_15w"]
		reboot = "$SUITE/tools/simulated_lab.sh reboot $here {mode}"
		mode = "cat $here/mode"
		power = "$folder/power"
	EOF
    printf '#!/bin/sh\n"%s" cut "%s/$1"\nexec "%s" start "%s/$1"\n' "$0" "$folder" "$0" "$folder" > "$folder/power"
    chmod +x "$folder/power"
    start "$here"
}

start() {
    local here=$1 namespace
    . "$here/settings"
    cat /proc/sys/kernel/random/uuid > "$here/root/proc/sys/kernel/random/boot_id"
    [ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
    # sshd wants to be called by its whole path; nothing of the caller stays open in it
    ${namespace:+ip netns exec "$namespace"} env -u SIMULATED_BOARD setsid "$SSHD" -f "$here/sshd_config" -E "$here/sshd.log" \
        < /dev/null > /dev/null 2>&1
    for _ in $(seq 300); do # it writes the file once it listens
        [ ! -s "$here/sshd.pid" ] || break
        sleep 0.1
    done
}

processes() { # of a board: what descends from its sshd, and what its sessions started
    local here=$1 found
    found=$(cat "$here/sshd.pid" 2> /dev/null) || true
    while [ -n "$found" ]; do
        echo "$found"
        found=$(ps -o pid= --ppid "$(echo $found | tr ' ' ,)" || true)
    done
    grep -lzx "SIMULATED_BOARD=$here" /proc/[0-9]*/environ 2> /dev/null | cut -d / -f 3 | grep -vx $$ || true
}

cut_power() {
    local here=$1 pids
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        pids=$(processes "$here")
        rm -f "$here/sshd.pid"
        [ -n "$pids" ] || return 0
        kill -9 $pids 2> /dev/null || true
        sleep 0.1
    done
}

reboot() {
    local here=$1
    echo "$2" > "$here/mode"
    # by itself, as init does: this very process ends with the board
    env -u SIMULATED_BOARD setsid bash -c 'sleep 1; "$0" cut "$1"; sleep 1; exec "$0" start "$1"' "$0" "$here" \
        < /dev/null > /dev/null 2>&1 &
}

stop() {
    local here namespace
    for here in "$(cd "$1" && pwd)"/board*/; do
        here=${here%/}
        cut_power "$here"
        . "$here/settings"
        [ -z "$namespace" ] || ip netns del "$namespace" 2> /dev/null || true
    done
}

case ${1:-} in
    make | start | reboot | stop) "$@" ;;
    cut) cut_power "$2" ;;
    *) sed -n 2,9p "$0" >&2 && exit 2 ;;
esac
