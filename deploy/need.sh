#!/bin/sh
# Installs missing commands that tests need, and nothing else: need.sh COMMAND:PACKAGE..., with
# Debian's names of packages. In place of a command there may be the path of a file.
set -eu
missing=
for need in "$@"; do
	command -v "${need%%:*}" >/dev/null 2>&1 || [ -e "${need%%:*}" ] || missing="$missing ${need#*:}"
done
[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
	echo "The tests need$missing: install them. As root on Debian, make installs them itself." >&2
	exit 1
fi
echo "Installing$missing."
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # words are packages
apt-get install -y -qq --no-install-recommends $missing >/dev/null
