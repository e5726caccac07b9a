#!/bin/bash
# sdk_test.sh SDK.tar: with the SDK, g++ and pkg-config alone, examples become programs that run their cluster in one process, and one of them a program library that
# the stock binaries run as a cluster of processes.
set -euo pipefail

sources=$PWD/examples links=$PWD/tests/docs/links.py
sdk=$TEST_TMPDIR/sdk
mkdir "$sdk"
tar -C "$sdk" -xf "$1"
cd "$TEST_TMPDIR"
export PKG_CONFIG_PATH=$sdk/lib/pkgconfig HOME=$TEST_TMPDIR PATH=$PATH:/usr/sbin:/sbin

fail() { echo "FAILED: $*"; exit 1; }

# ---- what is in it: no header knows protobuf or gRPC
[[ $(pkg-config --modversion divvy) =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "no version"
if grep -rlE '#include "(grpc|proto/|google/protobuf)' "$sdk/include"; then fail "these headers are none of a program's"; fi

# ---- what else a person wants of it
for file in README.md Dockerfile share/divvy/example/{digits.cc,digits.csv.gz,CMakeLists.txt} \
  share/doc/divvy/{LICENSE,docs/README.md,docs/guide/README.md,docs/operating/operations.md,docs/operating/deploy.md}; do
  [[ -s $sdk/$file ]] || fail "no $file"
done
"$links" --links "$sdk" >log || { cat log; fail "a document leads nowhere"; }

# The image has the packages of all libraries that a program and the stock binaries name. Readers read to the end: a writer whose pipe is closed early ends
# with an error, and the test with it.
for file in "$sdk"/lib/libdivvy.so "$sdk"/bin/*; do readelf -d "$file"; done | grep -oP 'NEEDED.*\[\K[^]]+' | sort -u | grep -v divvy >needed
while read -r library; do
  path=$(ldconfig -p | awk -v name="$library" '$1 == name && !found++ { print $NF }')
  path=$(realpath "$path") folder=$(basename "$(dirname "$(realpath "$path")")")
  package=$(dpkg -S "*/$folder/$(basename "$path")" | cut -d: -f1 | sed -n 1p)  # /lib is a link to /usr/lib, and packages name either
  [[ $package == libc6 || $package == libgcc-s1 ]] || grep -qw -- "$package" "$sdk/Dockerfile" || fail "the image lacks $package, for $library"
done <needed

# ---- with CMake: a program, and the same as a library
cmake -S "$sdk/share/divvy/example" -B build -DCMAKE_PREFIX_PATH="$sdk" -DCMAKE_BUILD_TYPE=Debug >log 2>&1 && cmake --build build >>log 2>&1 || { cat log; fail "CMake"; }
build/digits --ps=1 --workers=1 --epochs=1 --data="$sdk/share/divvy/example/digits.csv.gz" >log 2>&1 || { cat log; fail "the program that CMake built"; }
grep -q '45 training steps' log || { cat log; fail "the steps of the program that CMake built"; }
[[ -s build/libdigits.so ]] || fail "CMake's library"
sed -i 's/find_package(divvy /&9 /' "$sdk/share/divvy/example/CMakeLists.txt"
cmake -S "$sdk/share/divvy/example" -B other -DCMAKE_PREFIX_PATH="$sdk" >log 2>&1 && fail "CMake took this version for another"
grep -q 'version: 0.1.0' log || { cat log; fail "CMake does not say which version is there"; }

# ---- --help lists flags with their defaults
"$sdk/bin/worker" --help >log || fail "--help ended with $?"
grep -q -- '--blas_threads=0' log || { cat log; fail "the flags of a worker"; }
"$sdk/bin/ps_server" --help | grep -- '--memory_limit_bytes=0' >/dev/null || fail "the flags of a parameter server"
"$sdk/bin/divvyctl" launch --help | grep -- '--max_restarts=5' >/dev/null || fail "the flags of divvyctl launch"
code=0
"$sdk/bin/divvyctl" resize --addr=127.0.0.1:1 2>log || code=$?
[[ $code -eq 64 ]] && grep -q 'Give --ps=N' log || { cat log; fail "resize without --ps ended with $code"; }
code=0
"$sdk/bin/divvyctl" drain --chaos=1s --addr=127.0.0.1:1 2>log || code=$?
[[ $code -eq 64 ]] && grep -q 'divvyctl drain: it has no flag --chaos' log || { cat log; fail "a flag of another command ended with $code"; }

# ---- a program
mapfile -t flags < <(pkg-config --cflags --libs divvy | xargs -n 1)
g++ -std=c++17 -O1 -c -fPIC -Wall -Wextra -Wno-unused-parameter $(pkg-config --cflags divvy) "$sources/digits.cc" -o digits.o
g++ digits.o -o digits "${flags[@]}"
./digits --ps=1 --workers=1 --epochs=1 --data="$sources/data/digits.csv.gz" 2>log || { cat log; fail "the program"; }
grep -q 'embedded cluster: chief, 1 ps, 1 workers' log || { cat log; fail "it did not run embedded"; }
./digits --help >log || fail "--help of a program ended with $?"
for flag in --epochs=30 --ps=2 --checkpoint_dir=; do grep -q -- "^  $flag" log || { cat log; fail "--help does not list $flag"; }; done
code=0
./digits --bind_address=127.0.0.1:0 2>log || code=$?
[[ $code -eq 78 ]] && grep -q -- '--bind_address: nothing is sent over a network' log || { cat log; fail "a flag that an embedded cluster does not obey ended with $code"; }

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
