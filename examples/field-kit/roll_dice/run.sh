#!/bin/bash
# Rolls dice. The request is small and flat, so a pattern reads it well enough.
request=$(cat)
number() { [[ $request =~ \"$1\":\ *([0-9]+) ]] && echo "${BASH_REMATCH[1]}" || echo "$2"; }

count=$(number count 2) sides=$(number sides 6)
if ((count < 1 || count > 100 || sides < 2)); then
    echo "give between 1 and 100 dice of at least 2 sides" >&2
    exit 1
fi
sum=0 dice=()
for ((i = 0; i < count; i++)); do
    roll=$((RANDOM % sides + 1))
    dice+=("$roll")
    ((sum += roll))
done
(IFS=,; printf '{"dice": [%s], "sum": %d}\n' "${dice[*]}" "$sum")
