#!/bin/bash
# sdk_test.sh SDK.tar: with the SDK, g++ and pkg-config alone, examples become programs that run their cluster in one process, and one of them a program library that
# the stock binaries run as a cluster of processes.
set -euo pipefail

sources=$PWD/examples
sdk=$TEST_TMPDIR/sdk
mkdir "$sdk"
tar -C "$sdk" -xf "$1"
cd "$TEST_TMPDIR"
export PKG_CONFIG_PATH=$sdk/lib/pkgconfig HOME=$TEST_TMPDIR

fail() { echo "FAILED: $*"; exit 1; }

# ---- what is in it: no header knows protobuf or gRPC
[[ $(pkg-config --modversion divvy) =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "no version"
if grep -rlE '#include "(grpc|proto|google/protobuf)' "$sdk/include"; then fail "these headers are none of a program's"; fi

# ---- a program
mapfile -t flags < <(pkg-config --cflags --libs divvy | xargs -n 1)
g++ -std=c++17 -O1 -c -fPIC -Wall -Wextra -Wno-unused-parameter $(pkg-config --cflags divvy) "$sources/digits.cc" -o digits.o
g++ digits.o -o digits "${flags[@]}"
./digits --ps=1 --workers=1 --epochs=1 --data="$sources/data/digits.csv.gz" 2>log || { cat log; fail "the program"; }
grep -q 'embedded cluster: chief, 1 ps, 1 workers' log || { cat log; fail "it did not run embedded"; }

# ---- one of several files
g++ -std=c++17 -O1 -Wall -Wextra -Wno-unused-parameter -I"$(dirname "$sources")" "$sources"/{two_tower,planted}.cc -o two_tower "${flags[@]}"
./two_tower --ps=1 --workers=1 --visits=5000 --epochs=1 >log 2>&1 || { cat log; fail "the program of two files"; }
grep -q 'held out: recall@10' log || { cat log; fail "what it has learnt"; }

# ---- the first as a library
g++ -shared digits.o -o libdigits.so -Wl,-z,defs "${flags[@]}"
cat >task <<END
#!/bin/bash
# The stock binary for the role that TF_CONFIG gives.
case \$TF_CONFIG in
  *'"type":"ps"'* | *'"type": "ps"'*) exec $sdk/bin/ps_server ;;
  *'"type":"worker"'* | *'"type": "worker"'*) exec $sdk/bin/worker --program=$PWD/libdigits.so ;;
  *) exec $sdk/bin/coordinator --program=$PWD/libdigits.so "\$@" ;;
esac
END
chmod +x task
"$sdk/bin/divvyctl" launch --ps=1 --workers=2 -- ./task --epochs=1 --data="$sources/data/digits.csv.gz" >log 2>&1 || { cat log; fail "the cluster of stock binaries"; }
grep -q '45 training steps' log || { cat log; fail "the steps of one epoch"; }

# ---- refusals: one line, 78
code=0
"$sdk/bin/worker" --program=./none.so 2>log || code=$?
[[ $code -eq 78 && $(wc -l <log) -eq 1 ]] || { cat log; fail "a missing library ended with $code"; }
grep -q -- '--program=./none.so: there is no such file' log || { cat log; fail "what is missing"; }
code=0
env -u TF_CONFIG "$sdk/bin/worker" --program=./libdigits.so 2>log || code=$?
[[ $code -eq 78 ]] && grep -q 'does not know which task it is: set TF_CONFIG, or --task_type=worker' log || { cat log; fail "a task that was not told which it is ended with $code"; }
echo "sdk_test: all well"
