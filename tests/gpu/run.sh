#!/usr/bin/env bash
# What only a CUDA machine can show, in one run. See `tests/gpu/run.sh --help`; the parts are in tests/gpu/__main__.py.
#
#   tests/gpu/run.sh [--python PYTHON | --venv DIR [--pip COMMAND]] [--model FOLDER] [--out DIR] [PART ...]
#
# --python: an environment that has sglang and this source tree installed. Else one is made in --venv (default .venv-gpu) with
# --pip (default: that environment's own pip; "uv pip" works too).
set -euo pipefail
cd "$(dirname "$0")/../.."

python="" venv=.venv-gpu pip="" rest=()
while [ $# -gt 0 ]; do
  case "$1" in
    --python|--venv|--pip)
      if [ $# -lt 2 ]; then echo "gpu: $1 needs a value; see tests/gpu/run.sh --help" >&2; exit 2; fi
      case "$1" in --python) python=$2 ;; --venv) venv=$2 ;; --pip) pip=$2 ;; esac
      shift 2 ;;
    -h|--help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) rest+=("$1"); shift ;;
  esac
done

# Before anything is downloaded: without a GPU none of it is of use.
if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
  echo "gpu: no CUDA GPU is at hand (nvidia-smi lists none); run this on a machine with one" >&2
  exit 2
fi
if [ -z "$python" ]; then
  if [ ! -x "$venv/bin/python" ]; then python3 -m venv "$venv"; fi
  python=$venv/bin/python
  if ! "$python" -c 'import sglang, pbkv' 2>/dev/null; then
    if [ -z "$pip" ]; then "$python" -m pip install 'sglang==0.5.23' .
    else VIRTUAL_ENV=$(cd "$venv" && pwd) $pip install 'sglang==0.5.23' .; fi
  fi
elif ! command -v "$python" >/dev/null; then
  echo "gpu: --python $python: no such program; name the python of an environment with sglang" >&2
  exit 2
fi
exec "$python" -m tests.gpu "${rest[@]+"${rest[@]}"}"
