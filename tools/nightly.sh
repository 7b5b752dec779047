#!/usr/bin/env bash
# A nightly run on a board, for any CI: measure, compare with earlier nights, and report in five lines what changed since when.
set -uo pipefail

usage() {
    cat << 'END'
usage: bash tools/nightly.sh [--device D] [OPTION ...] [-- ARGUMENT ...]

  bash tools/nightly.sh                                          # on a board
  bash tools/nightly.sh --device sim:orin-agx                    # a rehearsal without one
  bash tools/nightly.sh --device sim:orin-agx --slowdown 10%     # and a red night

Steps: doctor; restore, if a killed run left the board changed; the campaign, several times; `baseline check`; the gates of
predictors (MAPE) and strategies (time penalty); requirements; `compare` with the last green night; `history` of all nights;
pages.
A night is red if one of them fails: slower, more power, a broken gate, a failed case; with --strict also if something is
inconclusive or could not be compared.

  --device D           device to measure, as in `pytest benchmarks --device` (default: this board, else host)
  --pool P             measure on the boards of a fleet instead: `jetwatt fleet submit --pool P --wait`; cases that were
                       measured on another board than last time are not compared and do not make the night red
  --campaign C         quick, paper or a TOML file (default: quick)
  --repetitions N      how many times to run the campaign in a night (default: 3; a single run cannot show the noise)
  --nights DIR         where nights are kept (default: out/nights/DEVICE)
  --keep N             how many nights are kept, in addition to the last green one (default: 90)
  --baseline FILE      baseline for `baseline check` (default: NIGHTS/baseline.json, recorded on the first green night and
                       again by --accept)
  --require FILE       requirements that the night has to keep, as in `jetwatt check` (default: none)
  --by NAMES           conditions that may differ from night to night; differences are listed
                       (default: torch,l4t,jetpack,cuda,python)
  --strict, --no-strict   whether inconclusive is red (default: --strict; on shared machines use --no-strict)
  --accept             make this night the new reference: its times and power are not red, and later nights start from it
  --gates NAMES        predictors and strategies to gate, comma-separated, or none (default: physical-gp,closed-loop)
  --corpus FILE        a measured corpus of this board type for the gates; the first night records their references in
                       NIGHTS/gates (default: the suite's recorded references, which are for Orin AGX)
  --no-pages           make no report and no page of the history (they need the extra `report`)
  --slowdown P         make a simulated board slower on purpose, by 5 or 5%; every profile records it
  --summary FILE       file to which the summary is appended, as Markdown (default: $GITHUB_STEP_SUMMARY, if set)
  --python PYTHON      the interpreter (default: .venv/bin/python, else python3)
  --install VENV       first create or update the environment VENV with `make install`, and use its interpreter
  ARGUMENT             further arguments of `pytest benchmarks`: -k, axes, settings

Each night has a folder: NIGHT.sqlite (the profiles), junit-N.xml, benchmark.json (pytest-benchmark's, for
github-action-benchmark), summary.md, the output of each step, compare.json and history.json, report/ and history.html.

exit code: 0 green, 1 red, 2 wrong option.
END
}

die() { # die TEXT: a wrong option, before anything is done
    printf 'nightly: %s\n' "$*" >&2
    exit 2
}

is_link_of_another() { # is_link_of_another PATH: neither this user's nor root's
    [ -L "$1" ] && [ "$(stat -c %u "$1")" != 0 ] && [ "$(stat -c %u "$1")" != "$(id -u)" ]
}

{ # bash reads the whole block before it runs, so that a checkout meanwhile changes nothing
device='' pool='' campaign=quick repetitions=3 nights='' keep=90 baseline='' by=torch,l4t,jetpack,cuda,python strict=yes
accept=no gates=physical-gp,closed-loop corpus='' require='' pages=yes slowdown='' summary=${GITHUB_STEP_SUMMARY:-} python='' install=''
given=("$@")
while [ $# -gt 0 ]; do
    case $1 in
        --device | --pool | --campaign | --repetitions | --nights | --keep | --baseline | --by | --gates | --corpus | \
            --require | --slowdown | --summary | --python | --install)
            [ $# -gt 1 ] || die "$1 needs a value; --help lists the options"
            printf -v "${1#--}" '%s' "$2"
            shift
            ;;
        --strict) strict=yes ;;
        --no-strict) strict=no ;;
        --accept) accept=yes ;;
        --no-pages) pages=no ;;
        --help | -h)
            usage
            exit 0
            ;;
        --)
            shift
            break
            ;;
        *) die "unknown option $1; --help lists the options, arguments of pytest come after --" ;;
    esac
    shift
done
[[ $repetitions =~ ^[1-9][0-9]*$ ]] || die "--repetitions is '$repetitions', expected a number from 1 on"
[[ $keep =~ ^[1-9][0-9]*$ ]] || die "--keep is '$keep', expected a number from 1 on"
[[ -z $slowdown || $device == sim:* ]] || die "--slowdown needs a simulated board, got '$device'; give --device sim:BOARD"

script=$(realpath "${BASH_SOURCE[0]}")
root=$(dirname "$(dirname "$script")")
name=${pool:-${device:-board}}
! is_link_of_another "${nights%/}" || die "--nights: $nights is a link of another user"
nights=$(realpath -m "${nights:-$root/out/nights/${name//[^A-Za-z0-9._@-]/-}}")
baseline=$(realpath -m "${baseline:-$nights/baseline.json}")
[ -z "$summary" ] || summary=$(realpath -m "$summary")
[ -z "$corpus" ] || corpus=$(realpath -e "$corpus") || die "--corpus: no such file"
[ -z "$require" ] || require=$(realpath -e "$require") || die "--require: no such file"
[ ! -e "$campaign" ] || campaign=$(realpath "$campaign")
[ -z "$install" ] || install=$(realpath -m "$install")
cd "$root" || exit 2
if [ -n "$install" ]; then
    make install "VENV=$install" "EXTRAS=${EXTRAS:-train,report,dev}" || die "make install failed in $install"
    python=$install/bin/python
elif [ -z "$python" ]; then
    python=python3
    [ ! -x .venv/bin/python ] || python=$root/.venv/bin/python
fi
command -v "$python" > /dev/null || die "interpreter $python not found; give one with --python, or run 'make install'"

if [ -n "$require" ]; then # a misspelt file is refused before the measurements, not after them
    said=$("$python" -m pytest benchmarks/test_training.py --collect-only --quiet -p no:cacheprovider --require "$require" 2>&1)
    [ $? -ne 4 ] || die "--require: $(tail -n 1 <<< "$said")"
fi

with_verdict() { # with_verdict WORD: the nights with a verdict, oldest first
    local verdict_file
    for verdict_file in "$nights"/*/verdict; do
        ! grep -qsx "$1" "$verdict_file" || dirname "$verdict_file"
    done
}

of_night() { printf '%s/%s.sqlite' "$1" "$(basename "$1")"; } # of_night FOLDER: its results file

last_green=$(with_verdict green | tail -n 1)
if [ -n "$slowdown" ] && [ -z "$last_green" ]; then # a slowdown needs a green night to compare with
    echo "nightly: no green night yet, running one without --slowdown first"
    without=()
    for ((place = 0; place < ${#given[@]}; place++)); do
        if [ "${given[place]}" = --slowdown ]; then ((place++)); else without+=("${given[place]}"); fi
    done
    bash "$script" "${without[@]}" || exit
    last_green=$(with_verdict green | tail -n 1)
fi

night=$nights/$(date -u +%Y-%m-%dT%H%M%SZ)
until mkdir -p "$nights" && mkdir "$night" 2> /dev/null; do # another night started in the same second
    [ -d "$night" ] || die "cannot make the folder $night"
    sleep 1
    night=$nights/$(date -u +%Y-%m-%dT%H%M%SZ)
done
results=$(of_night "$night")
echo "nightly: $name, in $night"
[ -z "${GITHUB_OUTPUT:-}" ] || echo "folder=$night" >> "$GITHUB_OUTPUT" # for the upload step

step() { # step NAME COMMAND...: runs it, stores its output in NAME.txt and its exit code in steps.tsv
    local step=$1 code
    shift
    "$@" > "$night/$step.txt" 2>&1
    code=$?
    printf '%s\t%s\n' "$step" "$code" >> "$night/steps.tsv"
    printf '  %-12s %s\n' "$step" "$("$python" -m tools.night "$night" --ended "$step")"
    return "$code"
}
jetwatt() { "$python" -m jetwatt "$@"; }

campaign() { # campaign NUMBER ARGUMENT...: runs it once, without mode searches, whose modes differ from night to night
    local number=$1 once=()
    shift
    [ "$number" -gt 1 ] || once=(--benchmark-json "$night/benchmark.json")
    "$python" -m pytest benchmarks ${device:+--device "$device"} --campaign "$campaign" --results "$results" \
        ${slowdown:+--slowdown "$slowdown"} --junitxml "$night/junit-$number.xml" "${once[@]}" -p no:cacheprovider \
        --ignore benchmarks/test_mode_search.py "$@"
}

on_the_fleet() { # on_the_fleet ARGUMENT...: runs the campaign on the boards of a pool
    jetwatt fleet submit --campaign "$campaign" --pool "$pool" --wait -- "$@"
    local code=$?
    jetwatt fleet collect --out "$results" && return "$code"
}

measure() { # measure ARGUMENT...: all measurements of the night
    local number
    if [ -n "$pool" ]; then
        step doctor jetwatt fleet status
        step campaign on_the_fleet "$@"
        return
    fi
    step doctor jetwatt doctor ${device:+--device "$device"}
    step restore jetwatt restore || return
    for ((number = 1; number <= repetitions; number++)); do
        step "campaign-$number" campaign "$number" "$@" || return
    done
}

run_gates() { # gates of errors, penalties and plans, on a corpus of this type of board
    local board=$device names=${gates//,/ or } where=simulated own=() kernels
    [ "$gates" != none ] || return
    if [ -z "$board" ]; then # from the profiles
        board=$(jetwatt results info "$results" --json |
            "$python" -c 'import json, sys; print(json.load(sys.stdin)[0]["boards"][0]["device"])')
    fi
    board=${board#sim:} board=${board%@*}
    if [ -n "$corpus" ]; then
        where=measured-orin-agx-training own=(--gate-corpus "$corpus" --gate-baselines "$nights/gates")
    elif [ "$board" != orin-agx ]; then
        echo "  gates        no recorded references for $board; give a corpus of it with --corpus FILE"
        return
    elif [[ $device != sim:* ]] && [ -n "${JETWATT_DATA:-}" ]; then
        where="simulated or measured"
    fi
    kernels=$("$python" -m tools.kernels) # those of the references: with others the gates are less strict
    step gates env $kernels "$python" -m pytest tests/gates -k "as_recorded and ($where) and ($names)" "${own[@]}" -p no:cacheprovider -q
}

nights_since_accepted() { # results files of the finished nights since the last accepted one, and of this night
    local folder files=()
    for folder in "$nights"/*/verdict; do
        folder=$(dirname "$folder")
        [ ! -e "$folder/accepted" ] || files=()
        [ ! -e "$(of_night "$folder")" ] || files+=("$(of_night "$folder")")
    done
    printf '%s\n' "${files[@]}" "$results"
}

judge() { # judges the night by requirements, and compares it with earlier ones
    local strictly=() page=() files argument
    [ "$strict" = no ] || strictly=(--strict)
    if [ -n "$require" ]; then
        step requirements jetwatt check "$require" "$results" --markdown --write-json "$night/requirements.json" "${strictly[@]}"
    fi
    for argument in "${arguments[@]}"; do # selecting cases leaves out others of the baseline
        [[ $argument =~ ^(-[km]|(--cases|--deselect)(=|$)) ]] && strictly+=(--partial)
    done
    if [ -e "$baseline" ] && [ "$accept" = no ]; then
        step baseline jetwatt baseline check --results "$results" --baseline "$baseline" --by "$by" "${strictly[@]}"
    fi
    if [ -n "$last_green" ]; then
        step compare jetwatt compare "$(of_night "$last_green")" "$results" --by "$by" --markdown \
            --write-json "$night/compare.json"
    fi
    if [ "$accept" = yes ]; then files=("$results"); else mapfile -t files < <(nights_since_accepted); fi
    if [ "$pages" = yes ] && "$python" -c 'import jinja2, vl_convert' 2> /dev/null; then
        page=(--out "$night/history.html")
        step pages jetwatt report --results "$results" --out "$night/report"
    fi
    step history jetwatt history "${files[@]}" --index "$nights/.jetwatt-history" --markdown --write-json "$night/history.json" "${page[@]}"
}

arguments=("$@")
measure "$@"
if [ -s "$results" ]; then
    run_gates
    judge
fi
"$python" -m tools.night "$night" --name "$name" --accept "$accept" --strict "$([ -n "$pool" ] && echo no || echo "$strict")" \
    ${last_green:+--last-green "$last_green"}
verdict=$?
if [ "$verdict" -eq 0 ]; then
    [ "$accept" = no ] || touch "$night/accepted"
    if [ ! -e "$baseline" ] || [ "$accept" = yes ]; then
        jetwatt baseline record --results "$results" --baseline "$baseline" > "$night/recorded.txt" || verdict=1
    fi
fi
[ -z "$summary" ] || cat "$night/summary.md" >> "$summary"
if [ "$verdict" -eq 0 ]; then echo green; else echo red; fi > "$night/verdict"

# remove old nights, but never the last green one
last_green=$(with_verdict green | tail -n 1)
finished=("$nights"/*/verdict)
for ((place = 0; place < ${#finished[@]} - keep; place++)); do
    old=$(dirname "${finished[place]}")
    [ "$old" = "$last_green" ] || rm -rf -- "$old"
done
exit "$verdict"
}
