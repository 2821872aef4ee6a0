#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What quickstart.sh and test.sh share: installs what is missing, finds a CUDA compiler, builds.
# Run by itself it does the first two and stops.
#
#   KVR_NO_CUDA=1         hide CUDA altogether: host device only
#   KVR_NO_SYSTEM_CUDA=1  pass over installed toolkits: take NVIDIA's wheels
#   KVR_JOBS=N            parallel compiles (default: one a core)
#
# Nothing is asked of root when nothing is missing. A missing GPU or CUDA is said, never a failure.

set -euo pipefail

KVR_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
KVR_LOGS="$KVR_ROOT/build/logs"
KVR_VENV="$KVR_ROOT/.venv"
KVR_ABSEIL="$KVR_ROOT/build/abseil"  # an instrumented one: kvr_abseil

# Debian 12's names of what the build uses.
KVR_PACKAGES=(
  g++ cmake ninja-build ccache python3 pkg-config
  libabsl-dev libboost-dev libboost-context-dev libboost-filesystem-dev libboost-system-dev
  libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libspdlog-dev libfmt-dev
  llvm-19-dev libclang-19-dev libzstd-dev zlib1g-dev
  libsqlitecpp-dev libsqlite3-dev libgtest-dev libgmock-dev libbenchmark-dev
)

# One CUDA release: 13.0 update 2. The compiler, then the headers that device code includes.
KVR_WHEEL_PINS=(
  nvidia-cuda-nvrtc==13.0.88
  nvidia-cuda-runtime==13.0.96
  nvidia-cuda-crt==13.0.88
  nvidia-cuda-cccl==13.0.85
)

kvr_seconds() { date +%s.%N; }

# kvr_line STEP TEXT [START]: one line a step, with the time it took.
kvr_line() {
  local took=""
  if [[ $# -ge 3 ]]; then
    took="$(awk -v a="$3" -v b="$(kvr_seconds)" 'BEGIN { printf " (%.1f s)", b - a }')"
  fi
  printf '%-10s %s%s\n' "$1" "$2" "$took"
}

# kvr_logged LOG COMMAND...: output to build/logs/LOG.log; its end is shown if the command fails.
# On a terminal the last line is shown while it runs.
kvr_logged() {
  local log="$KVR_LOGS/$1.log" status=0
  shift
  mkdir -p "$KVR_LOGS"
  printf '$ %s\n' "$*" >"$log"
  if [[ -t 2 ]]; then
    "$@" >>"$log" 2>&1 </dev/null &
    local pid=$!
    while kill -0 "$pid" 2>/dev/null; do
      printf '\r\033[K  %.100s' "$(tail -n 1 "$log" | tr -d '\r\033')" >&2
      sleep 0.5
    done
    printf '\r\033[K' >&2
    wait "$pid" || status=$?
  else
    "$@" >>"$log" 2>&1 </dev/null || status=$?
  fi
  if [[ $status -ne 0 ]]; then
    printf -- '--- the last lines of %s\n' "$log" >&2
    tail -n 40 "$log" >&2
  fi
  return "$status"
}

kvr_truthy() { [[ -n "${1:-}" && "${1:-}" != 0 ]]; }

kvr_missing_packages() {
  local package
  for package in "$@"; do
    if ! dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed; then
      printf '%s\n' "$package"
    fi
  done
}

# As root, or through sudo; 1 if neither is to be had.
kvr_as_root() {
  if [[ "$(id -u)" -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    return 1
  fi
}

kvr_apt_install() {
  kvr_as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
    kvr_as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get -q -y --no-install-recommends install "$@"
}

# kvr_install STEP PACKAGE...: 0 if they are there now.
kvr_install() {
  local step="$1" start missing
  shift
  start="$(kvr_seconds)"
  if ! command -v dpkg-query >/dev/null; then
    kvr_line "$step" "no dpkg here: expecting what Debian 12 calls $*"
    return 0
  fi
  missing="$(kvr_missing_packages "$@" | tr '\n' ' ')"
  missing="${missing% }"
  if [[ -z "$missing" ]]; then
    kvr_line "$step" "all there" "$start"
    return 0
  fi
  if [[ "$(id -u)" -ne 0 ]] && ! command -v sudo >/dev/null; then
    kvr_line "$step" "missing: $missing"
    printf '%s\n' "Not root, and there is no sudo. Have root run:" \
      "  apt-get update && apt-get install --no-install-recommends $missing" >&2
    return 1
  fi
  # sudo asks for its password here, where it can be seen; apt itself goes to the log.
  if [[ "$(id -u)" -ne 0 ]]; then
    if [[ -t 0 ]]; then sudo -v; else sudo -n true; fi || {
      kvr_line "$step" "missing: $missing; sudo was refused"
      return 1
    }
  fi
  kvr_line "$step" "installing $missing"
  # shellcheck disable=SC2086
  if ! kvr_logged apt kvr_apt_install $missing; then
    kvr_line "$step" "apt-get failed; see $KVR_LOGS/apt.log" "$start"
    return 1
  fi
  kvr_line "$step" "installed" "$start"
}

# Is DIRECTORY a CUDA toolkit that KVR can compile with? NVRTC with its builtins, and the headers.
kvr_is_toolkit() {
  local home="$1" lib include found_lib="" found_include="" found_target=""
  for lib in "$home"/lib64 "$home"/lib "$home"/targets/*/lib; do
    if compgen -G "$lib/libnvrtc.so.1[23]" >/dev/null &&
      compgen -G "$lib/libnvrtc-builtins.so.1[23].*" >/dev/null; then
      found_lib="$lib"
    fi
  done
  for include in "$home"/include "$home"/targets/*/include; do
    if [[ -f "$include/cuda_bf16.h" && -f "$include/cuda_runtime_api.h" ]]; then
      found_include="$include"
    fi
    if [[ -f "$include/nv/target" || -f "$include/cccl/nv/target" ]]; then found_target=1; fi
  done
  [[ -n "$found_lib" && -n "$found_include" && -n "$found_target" ]]
}

kvr_site_packages() { compgen -G "$KVR_VENV/lib/python3*/site-packages" | head -n 1; }

kvr_pip_wheels() {
  [[ -x "$KVR_VENV/bin/python" ]] || python3 -m venv "$KVR_VENV"
  "$KVR_VENV/bin/python" -m pip install --no-deps --only-binary :all: "${KVR_WHEEL_PINS[@]}"
}

# NVIDIA's wheels in .venv; 1 if they could not be had.
kvr_wheels() {
  local start stamp="$KVR_VENV/kvr-wheels" pins="${KVR_WHEEL_PINS[*]}"
  start="$(kvr_seconds)"
  if [[ "$(cat "$stamp" 2>/dev/null)" != "$pins" ]] ||
    ! kvr_is_toolkit "$(kvr_site_packages)/nvidia/cu13"; then
    if [[ ! -x "$KVR_VENV/bin/python" ]] && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
      kvr_install venv python3-venv || return 1
    fi
    kvr_line cuda "getting NVIDIA's wheels: $pins"
    if ! kvr_logged wheels kvr_pip_wheels ||
      ! kvr_is_toolkit "$(kvr_site_packages)/nvidia/cu13"; then
      kvr_line cuda "the wheels could not be had; see $KVR_LOGS/wheels.log" "$start"
      return 1
    fi
    printf '%s\n' "$pins" >"$stamp"
  fi
  kvr_line cuda "NVIDIA's wheels in $(kvr_site_packages)/nvidia/cu13" "$start"
}

# Sets KVR_CUDA to where the CUDA compiler and headers lie, or to nothing, and exports what the
# programs read.
kvr_find_cuda() {
  local home
  KVR_CUDA=""
  if kvr_truthy "${KVR_NO_CUDA:-}"; then
    export KVR_NO_CUDA
    kvr_line cuda "hidden by KVR_NO_CUDA: host device only, nothing is compiled for GPUs"
    return 0
  fi
  if kvr_truthy "${KVR_NO_SYSTEM_CUDA:-}"; then
    export KVR_NO_SYSTEM_CUDA
    unset CUDA_HOME
  else
    for home in "${CUDA_HOME:-}" /usr/local/cuda; do
      if [[ -n "$home" ]] && kvr_is_toolkit "$home"; then
        KVR_CUDA="$home"
        kvr_line cuda "toolkit in $home"
        break
      fi
      if [[ -n "$home" && -d "$home" ]]; then
        kvr_line cuda "$home lacks NVRTC or its headers: looking further"
      fi
    done
  fi
  if [[ -z "$KVR_CUDA" ]] && kvr_wheels; then
    KVR_CUDA="$(kvr_site_packages)/nvidia/cu13"
  fi
  if [[ -z "$KVR_CUDA" ]]; then
    kvr_line cuda "none: host device only, nothing is compiled for GPUs"
    return 0
  fi
  # Where the programs would look by themselves needs no telling; of the wheels they do not know,
  # and an unusable CUDA_HOME must not come first.
  if [[ "$KVR_CUDA" != "${CUDA_HOME:-/usr/local/cuda}" ]]; then export KVR_CUDA_HOME="$KVR_CUDA"; fi
}

# Sets KVR_GPU to the first GPU's name, or to nothing, and KVR_NO_GPU_REASON to why.
kvr_find_gpu() {
  KVR_GPU=""
  KVR_NO_GPU_REASON=""
  if kvr_truthy "${KVR_NO_CUDA:-}"; then
    KVR_NO_GPU_REASON="KVR_NO_CUDA hides it"
  elif ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
    KVR_NO_GPU_REASON="there is no NVIDIA GPU (no /dev/nvidia0)"
  elif ! KVR_GPU="$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)" ||
    [[ -z "$KVR_GPU" ]]; then
    KVR_GPU=""
    KVR_NO_GPU_REASON="nvidia-smi finds no working GPU"
  fi
  if [[ -n "$KVR_GPU" ]]; then
    kvr_line gpu "$KVR_GPU"
  else
    kvr_line gpu "none: $KVR_NO_GPU_REASON; running on the host device"
  fi
}

kvr_setup() {
  kvr_install packages "${KVR_PACKAGES[@]}"
  kvr_find_cuda
  kvr_find_gpu
}

# Debian's source of Abseil, unpacked in $PWD/source, without root: the machine's own package
# sources, asked for their source packages, with lists of our own.
kvr_abseil_source() {
  local options=(-q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$PWD/apt/parts"
    -o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache")
  rm -f ./*.dsc
  mkdir -p apt/parts apt/lists/partial apt/cache/archives/partial
  if [[ -f /etc/apt/sources.list.d/debian.sources ]]; then
    sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources >apt/parts/kvr.sources
  else
    sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >apt/parts/kvr.list
  fi
  apt-get "${options[@]}" update && apt-get "${options[@]}" --download-only source abseil &&
    rm -rf source && dpkg-source -x ./*.dsc source
}

kvr_abseil_build() {
  kvr_logged abseil-source kvr_abseil_source || return 1
  kvr_logged abseil-configure cmake -S source -B build -G Ninja -DCMAKE_BUILD_TYPE=Debug \
    -DCMAKE_CXX_STANDARD=17 "-DCMAKE_CXX_FLAGS=$1" -DBUILD_TESTING=OFF \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
    -DCMAKE_INSTALL_LIBDIR=lib "-DCMAKE_INSTALL_PREFIX=$KVR_ABSEIL/installed" || return 1
  kvr_logged abseil-build cmake --build build -j "${KVR_JOBS:-$(nproc)}" --target install
}

# kvr_abseil FLAGS: an Abseil built with FLAGS, in $KVR_ABSEIL/installed. Debian's own is not
# instrumented: ThreadSanitizer sees races in it that are none. 1 if it cannot be had.
kvr_abseil() {
  local flags="$1" start
  start="$(kvr_seconds)"
  if [[ "$(cat "$KVR_ABSEIL/flags" 2>/dev/null)" != "$flags" ]]; then
    kvr_install dpkg-dev dpkg-dev || return 1
    mkdir -p "$KVR_ABSEIL"
    cd "$KVR_ABSEIL"
    if ! kvr_abseil_build "$flags"; then
      kvr_line abseil "its source could not be had or built; see $KVR_LOGS" "$start"
      return 1
    fi
    printf '%s\n' "$flags" >flags
  fi
  kvr_line abseil "built with $flags" "$start"
}

# kvr_build PRESET CMAKE_ARGUMENT...
kvr_build() {
  local preset="$1" start
  shift
  local cuda=(-U KVR_CUDA_INCLUDE -DKVR_NO_SYSTEM_CUDA=ON "-DKVR_CUDA_HOME=$KVR_CUDA")
  # One clone's compiles serve the next one's: ccache sees paths relative to the tree.
  export CCACHE_BASEDIR="${CCACHE_BASEDIR-$KVR_ROOT}" CCACHE_ABSSTDERR="${CCACHE_ABSSTDERR-1}"
  start="$(kvr_seconds)"
  cd "$KVR_ROOT"
  kvr_logged configure env -u CUDA_HOME cmake --preset "$preset" "${cuda[@]}" "$@" || return 1
  kvr_line configure "build/$preset" "$start"
  start="$(kvr_seconds)"
  kvr_logged build cmake --build --preset "$preset" -j "${KVR_JOBS:-$(nproc)}" || return 1
  kvr_line build "$(grep -c '^\[[0-9]*/[0-9]*\]' "$KVR_LOGS/build.log" || true) steps" "$start"
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
  kvr_setup
fi
