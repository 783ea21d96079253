#!/bin/bash
# Looks into text files. Bash has no JSON, so Python reads the request and writes the answer.
set -uo pipefail

mapfile -d '' -t fields < <(python3 -c '
import json, sys
request = json.load(sys.stdin)
given = request["input"]
for field in (request["tool"], given.get("path", ""), given.get("lines", 10), given.get("word", "")):
    print(field, end="\0")
')
tool=${fields[0]} path=${fields[1]} lines=${fields[2]} word=${fields[3]}

answer() { # answer IS_ERROR, with the text on stdin
    python3 -c 'import json, sys; print(json.dumps({"result": sys.stdin.read(), "is_error": sys.argv[1] == "yes"}))' "$1"
}

if [ ! -r "$path" ]; then
    printf 'cannot read %s' "$path" | answer yes
elif [ "$tool" = log_tail ]; then
    tail -n "$lines" -- "$path" | answer no
else
    printf '%s' "$(grep -c -F -e "$word" -- "$path")" | answer no
fi
