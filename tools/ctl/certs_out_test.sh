#!/bin/bash
# Tests that divvyctl certs writes keys only to a directory in which no other user could have placed
# a file or a link, and that only their owner can read them.
set -euo pipefail

divvyctl=$PWD/$1
cd "$TEST_TMPDIR"

failed() {
  echo "FAILED: $1" >&2
  exit 1
}
refused() {  # refused DIRECTORY WORDS
  if "$divvyctl" certs --out="$1" --ps=1 --workers=1 2>said; then failed "certs wrote into $1"; fi
  grep -q -- "$2" said || failed "certs --out=$1 said: $(cat said)"
}

mkdir others && chmod 1777 others
refused others "others can be written by others; take another, or chmod go-w others"
[ -z "$(ls -A others)" ] || failed "something is in the folder of others: $(ls others)"
ln -s others link
refused link "can be written by others"

mkdir own && chmod 700 own
ln -s "$PWD/others/stolen" own/ca.key
"$divvyctl" certs --out=own --ps=1 --workers=1 >/dev/null 2>said || grep -q "ca.key" said || failed "a link in the way: $(cat said)"
[ ! -e others/stolen ] || failed "the key of the CA went through a link"

"$divvyctl" certs --out=fresh --ps=1 --workers=1 >/dev/null
for key in fresh/*.key; do
  [ "$(stat -c %a "$key")" = 600 ] || failed "$key has mode $(stat -c %a "$key")"
done
