#!/usr/bin/env bash
# Runs tests as on a machine that differs from a developer's in much: as a plain user without sudo, with a home that cannot
# be written, in a folder with blanks and umlauts that is no checkout, with a long TMPDIR, another locale, width and time zone.
#   tools/odd_machine.sh                      # the first case of each quick test, if it meets the machine and does not train
#   tools/odd_machine.sh tests -k corpus -x   # or what these arguments of pytest select
# It uses the packages of .venv (PYTHON=... names another interpreter) and changes nothing outside a temporary folder.
# Exit code: pytest's; 77 if this machine cannot run it, with the reason.
set -euo pipefail

cannot() { # cannot REASON
    echo "odd_machine: cannot run here: $1" >&2
    exit 77
}

plain() { # plain COMMAND...: as root, runs it as the user `nobody`; it gets no further rights, by sudo or otherwise
    local user=()
    [ "$(id -u)" != 0 ] || user=(--reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all)
    setpriv "${user[@]}" --no-new-privs "$@"
}

open_up() { # open_up FOLDER...: lets the plain user reach folders below a closed one, as /root is, in this mount namespace
    local folder part closed hidden=()
    for folder in "$@"; do
        ! plain test -r "$folder" || continue
        mkdir "$scratch/hidden-${#hidden[@]}"
        mount --bind "$folder" "$scratch/hidden-${#hidden[@]}" || return
        hidden+=("$folder")
    done
    for part in "${!hidden[@]}"; do
        folder=${hidden[part]}
        while [ "$folder" != / ]; do
            plain test -x "$folder" || closed=$folder
            folder=$(dirname "$folder")
        done
        mount -t tmpfs -o mode=755 tmpfs "$closed" && mkdir -p "${hidden[part]}" &&
            mount --bind "$scratch/hidden-$part" "${hidden[part]}" || return
    done
}

run_tests() { # run_tests SCRATCH PYTHON ARGUMENT...
    scratch=$1
    local python=$2 base version packages
    shift 2
    { read -r base; read -r version; read -r packages; } < <("$python" -c 'import sys, sysconfig
print(sys.base_prefix, "%d.%d" % sys.version_info[:2], sysconfig.get_path("purelib"), sep="\n")')
    open_up "$base" "$packages" || cannot "a plain user can read neither $base nor $packages, and nothing can be mounted"
    cd "$scratch/Meine Projekte/äöü mit Leerzeichen/jetwatt"
    plain "$base/bin/python$version" -m venv --without-pip .venv
    # The clone as an editable installation. Python reads a .pth as ASCII here, so its path is not written out.
    printf '%s\n' "$packages" 'import os, sys; sys.path.append(os.path.dirname(sys.prefix))' \
        > ".venv/lib/python$version/site-packages/packages.pth"
    umask 077
    plain env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$scratch/home" TMPDIR="$(echo "$scratch"/long-*)" \
        LC_ALL=C COLUMNS=60 TZ=Asia/Kolkata FORCE_COLOR=1 \
        .venv/bin/python -m pytest --color no --benchmark-disable -p no:cacheprovider -q "$@"
}

if [ "${1:-}" = --run-tests ]; then # in a mount namespace of its own
    shift
    run_tests "$@"
    exit
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-.venv/bin/python}
[ "$(uname)" = Linux ] && command -v setpriv > /dev/null || cannot "it takes Linux and setpriv of util-linux"
[ -x "$PYTHON" ] || cannot "there is no $PYTHON; make install"
if [ $# -eq 0 ]; then # what meets the machine most: its files, users, folders, terminals and programs
    set -- tests/harness/{board,cli,core,devices,store} tests/harness/test_plugin.py tests/tools/test_nightly.py \
        tests/test_command_lines.py tests/test_installation.py -n 2 --dist worksteal --first-of-each \
        -m "not exhaustive and not training and not one_python"
fi

outside=$(mktemp -d /tmp/odd-machine-XXXXXX)
trap 'chmod -R u+rwX "$outside"; rm -rf "$outside"' EXIT
clone="$outside/Meine Projekte/äöü mit Leerzeichen/jetwatt"
mkdir -p "$clone" "$outside/home" "$outside/$(printf 'long-%.0s' {1..20})"
if [ -e .git ]; then # the files as they are, new ones included
    git -c safe.directory="$PWD" ls-files -z --cached --others --exclude-standard |
        tar -c --null -T - --ignore-failed-read 2> /dev/null
else
    tar -c --exclude='./.venv*' --exclude=./out .
fi | tar -x -C "$clone"
chmod 555 "$outside/home"
namespace=()
if [ "$(id -u)" = 0 ]; then
    namespace=(unshare -m) # what is mounted goes with it, before the folder is removed
    "${namespace[@]}" true 2> /dev/null || cannot "root may not unshare mounts, as in a container"
    chown -R 65534:65534 "$outside"
fi
"${namespace[@]}" bash tools/odd_machine.sh --run-tests "$outside" "$(realpath -s "$PYTHON")" "$@"
