#!/usr/bin/env python3
"""bench/usage.py LOG [--format=json]: prints the processor time and memory of each task, which
`divvyctl launch --usage` wrote to LOG. If the chief has printed the number of examples trained,
also prints the processor time of ps and workers for 1,000 examples. The chief's time is left out,
because the chief measures the ceiling."""
import json
import re
import sys

USAGE = re.compile(r'^launch *\| usage: (.+): ([0-9.]+) s of CPU time, ([0-9.]+) MB at most$', re.M)
EXAMPLES = re.compile(r'^chief *\| .*\bexamples_trained"?:? ([0-9]+)', re.M)


def main():
  log = open(sys.argv[1], encoding='utf-8', errors='replace').read()
  tasks = {name: {'processor_s': float(seconds), 'peak_mb': float(peak)} for name, seconds, peak in USAGE.findall(log)}
  if not tasks:
    return
  examples = EXAMPLES.search(log)
  cost = None
  if examples:
    cost = 1000 * sum(used['processor_s'] for name, used in tasks.items() if name != 'chief') / int(examples[1])
  if '--format=json' in sys.argv:
    print(json.dumps({'usage': tasks, 'processor_s_per_1000_examples': cost and round(cost, 4)}))
    return
  for name, used in tasks.items():
    print(f"  {name:<10} {used['processor_s']:8.2f} s of CPU time  {used['peak_mb']:8.1f} MB at most")
  if cost:
    print(f'  ps and workers: {cost:.3f} s of CPU time for 1,000 examples')


if __name__ == '__main__':
  main()
