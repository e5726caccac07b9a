#!/bin/bash
# Units have sections and keys that systemd knows: it only warns of others, and ignores them. Where
# systemd-analyze is installed, it also reads the units. Usage: systemd_verify_test.sh DIVVYCTL
set -euo pipefail

divvyctl=$PWD/$1
cd "$TEST_TMPDIR"
# systemd wants a program that exists.
"$divvyctl" gen systemd --evaluator --name=digits -- /bin/true '--note=50% of $HOME' >all
awk '/^# file: /{f=$3} {print >f}' all
[[ $(ls ./*.service | wc -l) -eq 4 ]] || { echo "FAILED: not four units: $(ls)"; exit 1; }

# The keys that systemd 247 knows.
known='Unit: Description After Wants StartLimitIntervalSec StartLimitBurst
Service: Type User Group EnvironmentFile LoadCredential ExecStart Restart RestartSec
Service: RestartPreventExitStatus SuccessExitStatus TimeoutStopSec MemoryMax LimitNOFILE
Service: ProtectSystem PrivateTmp StateDirectory StateDirectoryMode ReadWritePaths
Service: MemoryDenyWriteExecute ProtectHome NoNewPrivileges CapabilityBoundingSet
Service: RestrictAddressFamilies LockPersonality ProtectKernelTunables ProtectControlGroups UMask
Install: WantedBy'
# Lines behind a line that ends with a backslash are words of ExecStart=.
for unit in ./*.service; do
  keys=$(awk '!continued && /^\[.*\]$/ { section = substr($0, 2, length($0) - 2) }
              !continued && /^[^#\[]/ { print section ": " substr($0, 1, index($0, "=") - 1) }
              { continued = /\\$/ }' "$unit")
  [[ $(wc -l <<<"$keys") -ge 20 ]] || { echo "FAILED: $unit has few keys: $keys"; exit 1; }
  while read -r section key; do
    grep -q "^$section.* $key\( \|$\)" <<<"$known" || { echo "FAILED: $unit: [$section] $key"; exit 1; }
  done <<<"$keys"
done

if ! command -v systemd-analyze >/dev/null; then
  echo "4 units with known sections and keys; no systemd-analyze, which would read them"
  exit 0
fi
for unit in ./*.service; do
  # It prints what it does not know, and exits with 0.
  said=$(systemd-analyze verify "$unit" 2>&1) || { echo "FAILED: $unit: $said"; exit 1; }
  if grep -F "${unit#./}" <<<"$said"; then echo "FAILED: $unit"; exit 1; fi
done
echo "4 units with known sections and keys, read by systemd-analyze"
