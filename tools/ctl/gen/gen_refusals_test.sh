#!/bin/bash
# What `divvyctl gen` refuses ends with 64 and one line, and prints no file. generate_test.cc has
# the lines. Usage: gen_refusals_test.sh DIVVYCTL
set -euo pipefail

divvyctl=$PWD/$1
cd "$TEST_TMPDIR"

refused() {  # refused WORDS ARGUMENT...
  local code=0
  "$divvyctl" "${@:2}" >out 2>said || code=$?
  [[ $code -eq 64 ]] || { echo "FAILED: ${*:2}: exit code $code"; exit 1; }
  [[ ! -s out && $(wc -l <said) -eq 1 ]] || { echo "FAILED: ${*:2}: $(cat out said)"; exit 1; }
  grep -qF -- "$1" said || { echo "FAILED: ${*:2} said: $(<said)"; exit 1; }
}
kinds='kubernetes, tfjob, jobset, slurm, systemd, prometheus, compose'
refused "gen: the kind of file is missing: wanted one of $kinds, then -- ./program ARGS" gen
refused "gen: unknown kind \"helm\": wanted one of $kinds" gen helm -- ./digits
for kind in ${kinds//,/}; do
  refused 'the program is missing: write it after "--"' gen "$kind"
  refused '--ps=0: wanted 1 to 1000' gen "$kind" --ps=0 -- ./digits
done
refused '--name=A: wanted 1 to 40' gen kubernetes --name=A -- ./digits
refused '--ps_memory=8GB: wanted a size such as 8Gi' gen jobset --ps_memory=8GB -- ./digits
refused 'no task of the job reads --ps: write it before "--"' gen kubernetes -- ./digits --ps=4
refused 'a size such as 8Gi' gen slurm --nodes=1 --ps_memory=8388607Ti -- ./digits
refused "argument 1 is not UTF-8: \"x\\xff\"" gen systemd -- ./digits $'x\xff'
refused 'gen slurm does not use --image' gen slurm --image=x -- ./digits
refused 'divvyctl gen has no flag --chaos, which belongs to `divvyctl launch`' gen slurm --chaos=1s -- ./digits

# Every flag reaches the file.
"$divvyctl" gen kubernetes --ps=3 --workers=5 --name=n1 --evaluator --ps_memory=9Gi \
  --worker_memory=10Gi --coordinator_memory=11Gi --ps_cpus=12 --worker_cpus=13 --gpus_per_worker=14 \
  --image=i15 --namespace=n16 --tls_secret=s17 --data_claim=d18 --checkpoint_size=19Gi \
  --storage_class=c20 -- ./digits >out
for text in 'replicas: 3' 'completions: 5' 'name: n1-chief' 'name: n1-evaluator' '"9Gi"' '"10Gi"' '"11Gi"' \
  'cpu: 12' 'cpu: 13' 'nvidia.com/gpu: 14' 'image: i15' 'namespace: n16' 'secretName: s17' 'claimName: d18' \
  '"19Gi"' 'storageClassName: c20'; do
  grep -qF -- "$text" out || { echo "FAILED: no $text"; exit 1; }
done
"$divvyctl" gen jobset --checkpoint_claim=c1 -- ./digits >out
grep -q 'claimName: c1' out || { echo "FAILED: --checkpoint_claim"; exit 1; }
"$divvyctl" gen compose --data=d1 --checkpoints=c2 --tls_dir=t3 -- ./digits >out
for text in ./d1 c2 ./t3/ca.pem; do grep -qF "source: \"$text\"" out || grep -qF "source: $text" out || { echo "FAILED: no $text"; exit 1; }; done
"$divvyctl" gen slurm --nodes=4 -- ./digits >out
grep -q 'nodes=4' out || { echo "FAILED: --nodes"; exit 1; }
"$divvyctl" gen prometheus --of=systemd --hosts=h1,h2 --rules=/r3 -- ./digits >out
for text in h1:9464 h2:9465 /r3; do grep -qF "$text" out || { echo "FAILED: no $text"; exit 1; }; done
echo "refused and accepted as it should be"
