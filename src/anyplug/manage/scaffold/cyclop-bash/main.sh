#!/usr/bin/env bash
# The plugin PLUGIN_NAME, for Cyclop One and anyplug: one request on stdin, one answer on stdout.
#
# plugin.json says which tools there are, and what they need: "permissions": ["network"], for instance. What goes to
# stderr is the log: echo "..." >&2, then `anyplug -e . logs PLUGIN_NAME`. $CYCLOPONE_DATA_DIR is for what should last.
set -uo pipefail

# The tool: prints its answer; or the reason, if it returns 1.
count() {
    local -a words=()
    read -rd '' -a words <<<"$1"
    if ((${#words[@]} == 0)); then
        echo "there is no text to count"
        return 1
    fi
    echo "words: ${#words[@]}"
}

# Gives a text of the request by its key. That is enough for flat arguments which are texts; `jq` reads all others.
text_of() {
    local pattern='"'$1'" *: *"([^"\\]*(\\.[^"\\]*)*)"' text
    [[ $request =~ $pattern ]] || return
    text=${BASH_REMATCH[1]//\\\\/$'\1'} # a backslash of the text itself is put aside, and is no escape
    text=${text//\\\"/\"} text=${text//\\\//\/}
    printf -v text '%b' "$text" # the other escapes of JSON are those of printf
    printf '%s' "${text//$'\1'/\\}"
}

# Writes a text as JSON.
quote() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"} text=${text//$'\n'/\\n} text=${text//$'\t'/\\t}
    printf '"%s"' "${text//[[:cntrl:]]/ }"
}

request=$(cat)
failed=false
answer=$(count "$(text_of text)") || failed=true # with a second tool, `text_of tool` says which of them it is
printf '{"result": %s, "is_error": %s}\n' "$(quote "$answer")" "$failed"
